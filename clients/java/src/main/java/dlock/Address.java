package dlock;

import java.util.Objects;

/** Where a server is. */
final class Address {
    final String host;
    final int port;

    Address(String host, int port) {
        this.host = Objects.requireNonNull(host);
        if (port < 1 || port > 65535) {
            throw new IllegalArgumentException("not a port: " + port);
        }
        this.port = port;
    }

    /** Reads {@code host}, {@code host:port} or {@code [IPv6]:port}. */
    static Address parse(String text, int defaultPort) {
        int bracket = text.lastIndexOf(']');
        int colon = text.lastIndexOf(':');
        boolean ported = colon > bracket && (bracket >= 0 || text.indexOf(':') == colon);
        String host = ported ? text.substring(0, colon) : text;
        if (bracket >= 0 && host.startsWith("[") && host.endsWith("]")) {
            host = host.substring(1, host.length() - 1);
        }
        if (host.isEmpty()) {
            throw new IllegalArgumentException("no host in \"" + text + "\"");
        }
        try {
            return new Address(host, ported ? Integer.parseInt(text.substring(colon + 1)) : defaultPort);
        } catch (NumberFormatException e) {
            throw new IllegalArgumentException("not a port: \"" + text + "\"", e);
        }
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
