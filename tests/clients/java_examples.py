"""Writes the Java examples of a page as classes that compile.

    python3 java_examples.py PAGE DIRECTORY

An example that is not a class of its own becomes the body of a method in CONTEXT, which declares what the example uses.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

CONTEXT = """\
import dlock.*;
import java.time.Duration;
import javax.net.ssl.SSLContext;

abstract class Example%d {
    interface Worker {
        void start(long token);
        void stop();
    }

    DLockClient client;
    DLock lock;
    SSLContext context;
    String password;
    String report;
    Worker worker;

    abstract void write(String text, long token);

    abstract void start(Hold hold);

    void example() throws Exception {
%s    }
}
"""


def main() -> None:
    page, directory = Path(sys.argv[1]), Path(sys.argv[2])
    examples = re.findall(r"^```java\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    if not examples:
        sys.exit(f"{page}: no examples")
    for number, example in enumerate(examples, 1):
        name = re.search(r"^class (\w+)", example, re.MULTILINE)
        file = directory / f"{name[1] if name else f'Example{number}'}.java"
        file.write_text(example if name else CONTEXT % (number, example))


if __name__ == "__main__":
    main()
