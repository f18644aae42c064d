{# Rows that share a key. Null is a value of a key here: prompts without a topic, a tag or a country have it. #}
{% test unique_key(model, columns) %}
select {{ columns | join(', ') }}, count(*) as rows_with_this_key
from {{ model }}
group by {{ columns | join(', ') }}
having count(*) > 1
{% endtest %}
