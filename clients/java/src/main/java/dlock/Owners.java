package dlock;

import java.nio.charset.StandardCharsets;

/**
 * The names of owners: {@code LABEL:NUMBER:RANDOM}. The label says where a lock is held, the number which acquisition of
 * the client it was, and the random end makes it unique. A name has 64 bytes at most.
 */
final class Owners {
    /** The rest of 64 bytes beside a number of ten digits, 16 random ones and two colons. */
    static final int LONGEST_LABEL = 36;

    private final String label;
    private final String random;

    /** {@code random}: that of the client. */
    Owners(String label, long random) {
        this.label = label;
        this.random = String.format("%016x", random);
    }

    String name(long number) {
        return label + ":" + number + ":" + random;
    }

    /** Returns the label of a process. Of a long host name, the beginning. */
    static String labelOf(String host, long process) {
        String end = ":" + process;
        StringBuilder plain = new StringBuilder();
        for (int i = 0; i < host.length() && plain.length() < LONGEST_LABEL - end.length(); i++) {
            char c = host.charAt(i);
            boolean isPlain = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || "-._".indexOf(c) >= 0;
            plain.append(isPlain ? c : '-');
        }
        return (plain.length() == 0 ? "host" : plain) + end;
    }

    /** Returns a label that the user chose. Throws {@link IllegalArgumentException} if it cannot be one. */
    static String checked(String label) {
        boolean isPrintable = label.codePoints().noneMatch(c -> Character.isISOControl(c) || Character.isWhitespace(c));
        if (label.isEmpty() || !isPrintable || label.getBytes(StandardCharsets.UTF_8).length > LONGEST_LABEL) {
            throw new IllegalArgumentException("a label of owners must have 1 to " + LONGEST_LABEL
                    + " bytes and no white space, unlike \"" + label + "\"");
        }
        return label;
    }
}
