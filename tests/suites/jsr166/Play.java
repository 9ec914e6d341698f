import java.io.FileWriter;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Collections;
import java.util.List;
import junit.framework.AssertionFailedError;
import junit.framework.TestCase;
import junit.framework.TestListener;
import junit.framework.TestResult;
import junit.framework.TestSuite;

/** Plays the tests of some classes, or those that are named, and writes their results as tests/suites/run reads them. */
final class Play implements TestListener {
    /** Tests of conditions, which dlock does not have. */
    private static final String LEFT_OUT = "(?i).*(await|signal|condition|waiters|waitqueue|waitingthreads|bug8187408).*";
    private Throwable failed;

    public static void main(String[] only) {
        for (Class<?> each : List.of(ReentrantLockTest.class, ReentrantReadWriteLockTest.class, SemaphoreTest.class)) {
            TestSuite suite = new TestSuite(each.asSubclass(TestCase.class));
            for (junit.framework.Test test : Collections.list(suite.tests())) {
                TestCase one = (TestCase) test;
                if (!one.getName().matches(LEFT_OUT) && (only.length == 0 || List.of(only).contains(name(one)))) {
                    new Play().play(one);
                }
            }
        }
        System.exit(0);
    }

    private static String name(TestCase test) {
        return test.getClass().getName() + "." + test.getName();
    }

    private void play(TestCase test) {
        TestResult result = new TestResult();
        result.addListener(this);
        long start = System.nanoTime();
        test.run(result);
        System.out.printf("%s: %s in %d ms%n", name(test), failed, (System.nanoTime() - start) / 1_000_000);
        try (FileWriter results = new FileWriter(System.getenv("DLOCK_SUITE_RESULTS"), true)) {
            String why = String.valueOf(failed).replaceAll("\\s+", " ");
            results.write(failed == null ? "passed\t" + name(test) + "\n" : "failed\t" + name(test) + "\t" + why + "\n");
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    @Override
    public void addError(junit.framework.Test test, Throwable e) {
        e.printStackTrace(System.out);
        failed = e;
    }

    @Override
    public void addFailure(junit.framework.Test test, AssertionFailedError e) {
        addError(test, e);
    }

    @Override
    public void startTest(junit.framework.Test test) { }

    @Override
    public void endTest(junit.framework.Test test) { }
}
