package dlock;

import java.util.List;
import java.util.Locale;

/** The server refused a command, for example because the key has another type, or because of an ACL. */
public class ServerException extends DLockException {
    private static final long serialVersionUID = 1;

    private final String code;

    ServerException(String message, Throwable cause) {
        super(message, cause);
        this.code = codeOf(message);
    }

    /** Returns the first word of the server's error, for example {@code WRONGTYPE}. */
    public String code() {
        return code;
    }

    /** Returns whether the server is starting, or is an agent that reaches no server: then this is no answer yet. */
    static boolean isStarting(Throwable failure) {
        return failure instanceof ServerException && ((ServerException) failure).code.equals("LOADING");
    }

    /** Returns whether the failure is the error of a server that is no primary any more. */
    static boolean isOfReplica(Throwable failure) {
        return failure instanceof ServerException
                && (List.of("READONLY", "MASTERDOWN").contains(((ServerException) failure).code)
                        || failure.getMessage().startsWith("ERR WAIT cannot be used with replica"));
    }

    /** Returns whether the server refuses the command only for now, or because another one has the key. */
    boolean isForNow() {
        return isOfReplica(this)
                || List.of("UNBLOCKED", "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "LOADING").contains(code)
                || getMessage().startsWith("ERR max number of clients");
    }

    /** Returns the exception for an error reply. */
    static ServerException of(String message, Throwable cause) {
        if (codeOf(message).equals("DEADLOCK")) {
            return new DeadlockException(message, cause);
        }
        boolean isUnknown =
                message.startsWith("ERR unknown command") && message.toUpperCase(Locale.ROOT).contains("DLOCK.");
        return new ServerException(
                message + (isUnknown ? " (is the dlock module loaded on this server?)" : ""), cause);
    }

    /** Returns the first word if it looks like an error code, else an empty string. */
    static String codeOf(String message) {
        int end = message.indexOf(' ');
        String first = end < 0 ? message : message.substring(0, end);
        boolean upper = first.length() >= 2;
        for (int i = 0; i < first.length(); i++) {
            char c = first.charAt(i);
            upper &= c >= 'A' && c <= 'Z' || i > 0 && c >= '0' && c <= '9' || i > 0 && c == '_';
        }
        return upper ? first : "";
    }
}
