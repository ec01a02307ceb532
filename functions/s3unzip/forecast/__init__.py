"""Forecasts the time and the cost of a run before it begins.

The forecast is a discrete-event simulation of the tasks that the planner cut, on a model of AWS or
of one machine. It converts values to values: it makes no call and uses no file and no clock.
"""

from __future__ import annotations

from s3unzip.forecast.bounds import Bound
from s3unzip.forecast.cost import Cost, CostLine
from s3unzip.forecast.estimate import Forecast, Range, check_budget, forecast_run, make_forecast
from s3unzip.forecast.fixtures import (
    FIXTURES,
    Fixture,
    Published,
    find_fixture,
    make_fixture,
    make_tasks,
)
from s3unzip.forecast.steps import Step
from s3unzip.forecast.ways import choose_way, forecast_archive, merge_tasks
from s3unzip.forecast.workload import Bin, Workload, count_sizes, make_workload
from s3unzip.platforms import Latency, Platform, aws, local, one_function
