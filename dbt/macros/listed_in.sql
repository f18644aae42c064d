{# Rows whose columns name something that the other table does not list. A null names nothing. #}
{% test listed_in(model, to, columns) %}
select {% for column in columns %}rows_of.{{ column }}{{ ", " if not loop.last }}{% endfor %}, count(*) as rows_of_it
from {{ model }} as rows_of
left join {{ to }} as listed
  on {% for column in columns %}listed.{{ column }} = rows_of.{{ column }}{{ " and " if not loop.last }}{% endfor %}
where {% for column in columns %}rows_of.{{ column }} is not null and {% endfor %}listed.{{ columns[0] }} is null
group by {% for column in columns %}rows_of.{{ column }}{{ ", " if not loop.last }}{% endfor %}
{% endtest %}
