package dlock;

import java.util.Objects;

/** The host and the port of a server. */
final class Address {
    final String host;
    final int port;

    Address(String host, int port) {
        this.host = Objects.requireNonNull(host);
        if (port < 1 || port > 65535) {
            throw new IllegalArgumentException("a port must be a number from 1 to 65535");
        }
        this.port = port;
    }

    /**
     * Reads {@code host}, {@code host:port}, {@code [IPv6]} or {@code [IPv6]:port}. An error does not show the text,
     * because the text may be a piece of a password if it comes from a URL.
     */
    static Address parse(String text, int defaultPort) {
        int bracket = text.lastIndexOf(']');
        int colon = text.lastIndexOf(':');
        boolean ported = colon > bracket;
        String host = ported ? text.substring(0, colon) : text;
        boolean isInBrackets = host.startsWith("[") && host.endsWith("]");
        if (isInBrackets) {
            host = host.substring(1, host.length() - 1);
        }
        if (host.isEmpty() || host.indexOf('@') >= 0 || host.indexOf('[') >= 0 || host.indexOf(']') >= 0
                || !isInBrackets && host.indexOf(':') >= 0) {
            throw new IllegalArgumentException("no host, or an IPv6 address that is not in brackets");
        }
        String port = text.substring(colon + 1);
        if (ported && !port.matches("[0-9]{1,5}")) {
            throw new IllegalArgumentException("a port must be a number from 1 to 65535");
        }
        return new Address(host, ported ? Integer.parseInt(port) : defaultPort);
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Address && ((Address) other).host.equals(host) && ((Address) other).port == port;
    }

    @Override
    public int hashCode() {
        return Objects.hash(host, port);
    }

    @Override
    public String toString() {
        return (host.indexOf(':') < 0 ? host : "[" + host + "]") + ":" + port;
    }
}
