package dlock;

import org.opentest4j.TestAbortedException;

/** Says what is not tested here, and why. */
final class Skip {
    private Skip() {}

    static void unless(boolean there, String name, String reason) {
        if (!there) {
            System.out.println("skipped: " + name + ": " + reason);
            throw new TestAbortedException(reason);
        }
    }
}
