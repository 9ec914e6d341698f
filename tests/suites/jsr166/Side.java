import dlock.DLock;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;

/** A lock, or the readers' or the writer's side of one, that notes who waits and who entered. */
interface Side extends Lock {
    DLock side();

    Waiting waiting();

    void entered();

    @Override
    default void lock() {
        waiting().uninterruptibly(side()::lock);
        entered();
    }

    @Override
    default void lockInterruptibly() throws InterruptedException {
        waiting().interruptibly(() -> {
            side().lockInterruptibly();
            return true;
        });
        entered();
    }

    @Override
    default boolean tryLock() {
        return noted(side().tryLock());
    }

    @Override
    default boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
        return noted(waiting().interruptibly(() -> side().tryLock(time, unit)));
    }

    @Override
    default Condition newCondition() {
        return side().newCondition();
    }

    private boolean noted(boolean granted) {
        if (granted) {
            entered();
        }
        return granted;
    }
}
