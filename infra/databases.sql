-- Run once, when PostgreSQL's volume is made: a database and an owner of its own for each service.
\getenv password HEADRACE_DATABASE_PASSWORD
CREATE ROLE prefect LOGIN PASSWORD :'password';
CREATE DATABASE prefect OWNER prefect;
CREATE ROLE mlflow LOGIN PASSWORD :'password';
CREATE DATABASE mlflow OWNER mlflow;
CREATE ROLE headrace LOGIN PASSWORD :'password';
CREATE DATABASE headrace OWNER headrace;
