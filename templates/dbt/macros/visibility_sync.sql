{# Rows that share a key. Null is a value of a key here: prompts without a topic, a tag or a country have it. #}
{% test unique_key(model, columns) %}
{% set key %}{% for column in columns %}{{ adapter.quote(column) }}{{ ", " if not loop.last }}{% endfor %}{% endset %}
select {{ key }}, count(*) as rows_with_this_key
from {{ model }}
group by {{ key }}
having count(*) > 1
{% endtest %}

{# Rows whose columns name something that the other table does not list. A null names nothing. #}
{% test listed_in(model, to, columns) %}
select {% for column in columns %}rows_of.{{ column }}{{ ", " if not loop.last }}{% endfor %}, count(*) as rows_of_it
from {{ model }} as rows_of
left join {{ to }} as listed
  on {% for column in columns %}listed.{{ column }} = rows_of.{{ column }}{{ " and " if not loop.last }}{% endfor %}
where {% for column in columns %}rows_of.{{ column }} is not null and {% endfor %}listed.{{ columns[0] }} is null
group by {% for column in columns %}rows_of.{{ column }}{{ ", " if not loop.last }}{% endfor %}
{% endtest %}

{# The condition for the variable visibility_projects: rows of these projects, or of all if the list is empty. #}
{% macro in_visibility_projects() -%}
{%- set projects = var('visibility_projects', []) -%}
{%- if projects -%}project_id in ('{{ projects | join("', '") }}'){%- else -%}true{%- endif -%}
{%- endmacro %}
