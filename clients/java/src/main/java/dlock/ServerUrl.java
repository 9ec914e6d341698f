package dlock;

import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;

/**
 * A parsed URL. See {@link DLockClient.Builder#url} for its syntax. A part that is not understood is refused: a program
 * that takes no notice of it would lock in another place than the others.
 */
final class ServerUrl {
    private static final String SENTINEL = "-sentinel";
    private static final String DATABASE = "db=";

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
        if (url.chars().anyMatch(c -> c <= ' ' || c == 0x7f) || url.indexOf('#', url.lastIndexOf('@') + 1) >= 0) {
            throw new IllegalArgumentException("a URL has no white space and no #");
        }
        int schemeEnd = url.indexOf("://");
        if (schemeEnd < 0) {
            throw new IllegalArgumentException("a URL is redis://HOST:PORT");
        }
        String scheme = url.substring(0, schemeEnd).toLowerCase(Locale.ROOT);
        boolean sentinel = scheme.endsWith(SENTINEL);
        String base = sentinel ? scheme.substring(0, scheme.length() - SENTINEL.length()) : scheme;
        boolean tls = base.equals("rediss") || base.equals("valkeys");
        if (!tls && !base.equals("redis") && !base.equals("valkey")) {
            throw new IllegalArgumentException("unknown scheme " + scheme + "://");
        }
        String rest = url.substring(schemeEnd + 3);
        int at = rest.lastIndexOf('@');
        int question = rest.indexOf('?', at + 1);
        String query = question < 0 ? "" : rest.substring(question + 1);
        String place = question < 0 ? rest : rest.substring(0, question);
        if (question >= 0 && !query.startsWith(DATABASE)) {
            throw new IllegalArgumentException("a URL has no parameter but " + DATABASE + "NUMBER, not \"" + query + "\"");
        }
        int slash = place.indexOf('/', at + 1);
        String hosts = place.substring(at + 1, slash < 0 ? place.length() : slash);
        String path = slash < 0 ? "" : place.substring(slash + 1);
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
        String[] login = login(at < 0 ? "" : rest.substring(0, at), at >= 0);
        return new ServerUrl(addresses(hosts, sentinel ? 26379 : 6379), tls, primary, login[0], login[1],
                database(path, question < 0 ? null : query.substring(DATABASE.length())));
    }

    private static List<Address> addresses(String hosts, int port) {
        List<Address> addresses = new ArrayList<>();
        for (String address : hosts.split(",", -1)) {
            addresses.add(Address.parse(address, port));
        }
        return List.copyOf(addresses);
    }

    /** Returns user and password, each {@code null} if there is none. */
    private static String[] login(String login, boolean isThere) {
        int colon = login.indexOf(':');
        if (isThere && colon < 0) {
            throw new IllegalArgumentException("a login is USER:PASSWORD or :PASSWORD");
        }
        return isThere
                ? new String[] {colon == 0 ? null : decoded(login.substring(0, colon)), decoded(login.substring(colon + 1))}
                : new String[2];
    }

    /** Returns the database that the path or the parameter names. Both must agree. */
    private static int database(String path, String parameter) {
        int byPath = path.isEmpty() ? 0 : number(path);
        int byParameter = parameter == null ? byPath : number(parameter);
        if (!path.isEmpty() && byPath != byParameter) {
            throw new IllegalArgumentException("two databases: " + byPath + " and " + byParameter);
        }
        return byParameter;
    }

    private static int number(String text) {
        if (text.length() > 9 || !text.matches("[0-9]+")) {
            throw new IllegalArgumentException("not a database: \"" + text + "\"");
        }
        return Integer.parseInt(text);
    }

    /** Decodes percent escapes. Unlike in a form, {@code +} is a plus sign. */
    private static String decoded(String text) {
        return URLDecoder.decode(text.replace("+", "%2B"), StandardCharsets.UTF_8);
    }
}
