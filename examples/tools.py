"""Something that the model may have done: python examples/tools.py [base_url] [model].

The embedded model, which is the default, calls no tools; name one that does, such as claude-haiku-4-5.
"""

import sys

from cachegate.sdk import Client, Completed, Tool, ToolAnswered, ToolCalled


def weather(city: str) -> dict[str, object]:
    """Tell the weather; a plain function or a coroutine function."""
    return {"city": city, "sky": "clear", "celsius": 24}


WEATHER = Tool(
    name="weather",
    description="Tells the weather in a city.",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    run=weather,
)
MODEL = sys.argv[2] if sys.argv[2:] else "synthetic/cache"

with Client(*sys.argv[1:2]) as client:
    for event in client.chat(MODEL, tools=[WEATHER]).stream("What is the weather in Rome?"):
        match event:
            case ToolCalled(name=name, arguments=arguments):
                print("calls", name, arguments)
            case ToolAnswered(output=output):
                print("hears", output)
            case Completed(answer):
                print("says ", answer.text)
