"""BentoML: a prediction and a stream."""

import asyncio
import collections.abc

import bentoml


@bentoml.service(workers=1, traffic={"timeout": 30})
class Doubles:
    @bentoml.api
    def predict(self, values: list[float]) -> list[float]:
        return [2 * value for value in values]

    @bentoml.api
    async def count(self, upto: int) -> collections.abc.AsyncGenerator[str, None]:
        for number in range(upto):
            yield f"{number}\n"
            await asyncio.sleep(0.01)
