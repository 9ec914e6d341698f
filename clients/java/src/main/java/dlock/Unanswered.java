package dlock;

/**
 * A command has no answer, and perhaps never reached a server: the same command may be sent again. Does not leave the
 * package.
 */
final class Unanswered extends RuntimeException {
    private static final long serialVersionUID = 1;

    Unanswered(String message, Throwable cause) {
        super(message, cause);
    }

    /** Whether the same command may be sent again: nobody answered it, or the answer is "not now" or "not here". */
    static boolean mayRepeat(Throwable failure) {
        if (failure instanceof ServerException) {
            switch (((ServerException) failure).code()) {
                case "UNBLOCKED":
                case "MOVED":
                case "ASK":
                case "TRYAGAIN":
                case "CLUSTERDOWN":
                case "LOADING":
                case "MASTERDOWN":
                case "READONLY":
                    return true;
                default:
                    return false;
            }
        }
        return failure instanceof Unanswered;
    }
}
