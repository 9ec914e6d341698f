package dlock;

import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/**
 * A parsed URL. See {@link DLockClient.Builder#url} for its syntax.
 */
final class ServerUrl {
    final List<Address> addresses;
    final boolean tls;
    /** The name that Sentinel knows the primary by; {@code null}: the addresses are servers, not Sentinels. */
    final String primary;
    final String user;
    final String password;
    final int database;

    private ServerUrl(
            List<Address> addresses, boolean tls, String primary, String user, String password, int database) {
        this.addresses = addresses;
        this.tls = tls;
        this.primary = primary;
        this.user = user;
        this.password = password;
        this.database = database;
    }

    static ServerUrl parse(String url) {
        int schemeEnd = url.indexOf("://");
        if (schemeEnd < 0) {
            throw new IllegalArgumentException("a URL is redis://HOST:PORT");
        }
        String scheme = url.substring(0, schemeEnd);
        boolean sentinel = scheme.endsWith("-sentinel");
        String base = sentinel ? scheme.substring(0, scheme.length() - "-sentinel".length()) : scheme;
        boolean tls = base.equals("rediss") || base.equals("valkeys");
        if (!tls && !base.equals("redis") && !base.equals("valkey")) {
            throw new IllegalArgumentException("unknown scheme " + scheme + "://");
        }
        String rest = url.substring(schemeEnd + 3);
        int slash = rest.indexOf('/');
        String authority = slash < 0 ? rest : rest.substring(0, slash);
        String path = slash < 0 ? "" : rest.substring(slash + 1);
        int at = authority.lastIndexOf('@');
        String login = at < 0 ? "" : authority.substring(0, at);
        int colon = login.indexOf(':');
        String user = colon < 0 ? login : login.substring(0, colon);
        String password = colon < 0 ? null : decoded(login.substring(colon + 1));
        List<Address> addresses = new ArrayList<>();
        for (String address : authority.substring(at + 1).split(",", -1)) {
            addresses.add(Address.parse(address, sentinel ? 26379 : 6379));
        }
        String primary = null;
        if (sentinel) {
            int end = path.indexOf('/');
            primary = decoded(end < 0 ? path : path.substring(0, end));
            path = end < 0 ? "" : path.substring(end + 1);
            if (primary.isEmpty()) {
                throw new IllegalArgumentException(
                        "a Sentinel URL ends with the name of the primary: redis-sentinel://HOST:26379/NAME");
            }
        }
        return new ServerUrl(
                List.copyOf(addresses), tls, primary, user.isEmpty() ? null : decoded(user), password, database(path));
    }

    private static int database(String path) {
        try {
            return path.isEmpty() ? 0 : Integer.parseUnsignedInt(path);
        } catch (NumberFormatException e) {
            throw new IllegalArgumentException("not a database: \"" + path + "\"", e);
        }
    }

    /** Decodes percent escapes. Unlike in a form, {@code +} is a plus sign. */
    private static String decoded(String text) {
        return URLDecoder.decode(text.replace("+", "%2B"), StandardCharsets.UTF_8);
    }
}
