#!/bin/sh
# Makes the role and the database of visibility-sync, which is no superuser. The image of Postgres runs this once, for an empty volume.
set -eu
psql --set ON_ERROR_STOP=1 --set password="$(cat /run/secrets/database_password)" --username postgres --dbname postgres <<'SQL'
create role visibility login password :'password';
create database visibility owner visibility;
SQL
