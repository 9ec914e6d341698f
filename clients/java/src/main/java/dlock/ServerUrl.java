package dlock;

import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;

/**
 * A parsed URL. See {@link DLockClient.Builder#url} for its syntax. A part that is not understood is refused: a program
 * that takes no notice of it would lock in another place than the others. No error shows a part: any may be a piece of
 * a password that is not escaped.
 */
final class ServerUrl {
    private static final String SENTINEL = "-sentinel";
    private static final Set<String> PARAMETERS = Set.of("db", "username", "password");

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

    static ServerUrl parse(String text) {
        String url = text.trim();
        if (url.chars().anyMatch(c -> c <= ' ' || c == 0x7f) || url.indexOf('#') >= 0) {
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
            throw new IllegalArgumentException(
                    "the scheme of a URL is redis, rediss, valkey or valkeys, or one of them with -sentinel");
        }
        String[] queried = split(url.substring(schemeEnd + 3), '?');
        String[] placed = split(queried[0], '/');
        String path = placed[1].endsWith("/") ? placed[1].substring(0, placed[1].length() - 1) : placed[1];
        String primary = null;
        if (sentinel) {
            String[] named = split(path, '/');
            if (named[0].indexOf('@') >= 0) {
                throw new IllegalArgumentException("no primary has an @ in its name (in a password, / is %2F)");
            }
            primary = decoded(named[0]);
            path = named[1];
            if (primary.isEmpty()) {
                throw new IllegalArgumentException(
                        "a Sentinel URL ends with the name of the primary: redis-sentinel://HOST:26379/NAME");
            }
        }
        int at = placed[0].indexOf('@');
        Map<String, String> said = parameters(queried[1]);
        login(at < 0 ? "" : placed[0].substring(0, at), said);
        if (!path.isEmpty() && number(path) != number(said.getOrDefault("db", path))) {
            throw new IllegalArgumentException("two databases");
        }
        return new ServerUrl(addresses(placed[0].substring(at + 1), sentinel ? 26379 : 6379), tls, primary,
                said.get("username"), said.containsKey("username") ? said.getOrDefault("password", "") : said.get("password"),
                number(said.getOrDefault("db", path.isEmpty() ? "0" : path)));
    }

    /** Returns what is before and behind the first such character. */
    private static String[] split(String text, char by) {
        int at = text.indexOf(by);
        return at < 0
                ? new String[] {text, ""}
                : new String[] {text.substring(0, at), text.substring(at + 1)};
    }

    /** Returns the parameters. Each is there once. */
    private static Map<String, String> parameters(String query) {
        Map<String, String> said = new HashMap<>();
        for (String parameter : query.isEmpty() ? new String[0] : query.split("&", -1)) {
            String[] parts = split(parameter, '=');
            if (!PARAMETERS.contains(parts[0]) || parts[1].isEmpty() || said.put(parts[0], decoded(parts[1])) != null) {
                throw new IllegalArgumentException("a URL has the parameters " + PARAMETERS
                        + ", each once (in a password, ? is %3F, & is %26)");
            }
            if (parts[1].indexOf('+') >= 0) {
                throw new IllegalArgumentException("a + in a parameter is written %2B, and a blank %20");
            }
        }
        return said;
    }

    private static List<Address> addresses(String hosts, int port) {
        List<Address> addresses = new ArrayList<>();
        for (String address : hosts.split(",", -1)) {
            addresses.add(Address.parse(address, port));
        }
        return List.copyOf(addresses);
    }

    /** Adds the login to what the parameters say. */
    private static void login(String login, Map<String, String> said) {
        int colon = login.indexOf(':');
        String user = decoded(colon < 0 ? login : login.substring(0, colon));
        String password = colon < 0 ? "" : decoded(login.substring(colon + 1));
        if (user.isEmpty() && password.isEmpty()) {
            return;
        }
        if (said.containsKey("username") || said.containsKey("password")) {
            throw new IllegalArgumentException("two logins");
        }
        if (!user.isEmpty()) {
            said.put("username", user);
        }
        said.put("password", password);
    }

    private static int number(String text) {
        if (text.length() > 9 || !text.matches("[0-9]+")) {
            throw new IllegalArgumentException("the database of a URL is a number (in a password, / is %2F, [ is %5B)");
        }
        return Integer.parseInt(text);
    }

    /** Decodes percent escapes, which are UTF-8. Unlike in a form, {@code +} is a plus sign. */
    private static String decoded(String text) {
        if (text.matches(".*%(?![0-9a-fA-F]{2}).*")) { // URLDecoder would show what is there.
            throw new IllegalArgumentException("a % in a URL is followed by two hexadecimal digits (% itself is %25)");
        }
        String decoded = URLDecoder.decode(text.replace("+", "%2B"), StandardCharsets.UTF_8);
        if (decoded.indexOf('\uFFFD') >= 0) {
            throw new IllegalArgumentException("a URL is UTF-8");
        }
        return decoded;
    }
}
