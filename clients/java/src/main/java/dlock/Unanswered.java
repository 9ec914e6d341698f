package dlock;

/**
 * A command was not answered, and perhaps not sent. It may be sent again. This exception does not leave the package.
 */
final class Unanswered extends RuntimeException {
    private static final long serialVersionUID = 1;

    Unanswered(String message, Throwable cause) {
        super(message, cause);
    }

    /**
     * Returns whether the command may be sent again: it was not answered, or refused for the moment or by this server.
     */
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
