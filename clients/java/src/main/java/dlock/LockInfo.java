package dlock;

import java.util.List;

/** The fields of the reply to {@code DLOCK.INFO} that the client uses. Without a reply: those of a free lock. */
final class LockInfo {
    String mode = "free";
    int holders;
    long count;
    int waiters;

    private LockInfo() {}

    static LockInfo of(Core core, String name) {
        byte[][] command = Words.command("DLOCK.INFO", name);
        Core.Answer<Object> answer = Futures.join(core.repeat(name, command, core.patience()));
        LockInfo info = new LockInfo();
        List<?> fields = answer.reply instanceof List ? (List<?>) answer.reply : List.of();
        for (int i = 0; i + 1 < fields.size(); i += 2) {
            Object value = fields.get(i + 1);
            switch (Words.text(fields.get(i))) {
                case "mode":
                    info.mode = Words.text(value);
                    break;
                case "holders":
                    info.holders = Words.number(value).intValue();
                    break;
                case "count":
                    info.count = Words.number(value);
                    break;
                case "waiters":
                    info.waiters = Words.number(value).intValue();
                    break;
                default:
            }
        }
        return info;
    }

    /** Returns whether an owner holds the lock: in the mode of {@code READ} or {@code WRITE}, else in any mode. */
    boolean isHeldIn(Request.Mode side) {
        String other = side == Request.Mode.READ ? "exclusive" : side == Request.Mode.WRITE ? "shared" : "";
        return holders > 0 && !mode.equals(other);
    }

    /** Returns the number of free permits of a semaphore; 0 while an owner holds it exclusively. */
    long available(long limit) {
        boolean shared = mode.equals("shared") || mode.equals("free");
        return shared ? Math.max(0, limit - count) : 0;
    }
}
