"""Submits and polls a task with a client from openapi-generator.

Reads `{host, key}` from standard input and writes the result to standard output.
"""
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

from __future__ import annotations

import json
import sys

import openapi_client
from openapi_client.api.generate_api import GenerateApi
from openapi_client.api.results_api import ResultsApi
from openapi_client.exceptions import ApiException

arguments = json.load(sys.stdin)
request = openapi_client.ImageKleinRequest.from_dict({"prompt": "a cat", "width": 512, "height": 512})
settings = openapi_client.Configuration(host=arguments["host"], api_key={"APIKeyHeader": arguments["key"]})
with openapi_client.ApiClient(settings) as client:
    submission = GenerateApi(client).gen3_image_klein(request)
    result = ResultsApi(client).get_result(submission.id)
    answer = {"id": result.id, "status": result.status.value, "cost": submission.cost}
settings.api_key["APIKeyHeader"] = "gen_wrong"
with openapi_client.ApiClient(settings) as client:
    try:
        GenerateApi(client).gen3_image_klein(request)
    except ApiException as problem:
        answer["code"] = json.loads(problem.body)["code"]
print(json.dumps(answer))
