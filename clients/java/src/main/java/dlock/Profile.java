package dlock;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.function.Supplier;

/**
 * The settings of every connection of the client, except its address: user, password, database, name and TLS. A
 * connection that was made with another password than the present one is not used again.
 */
final class Profile {
    private final String user;
    /** {@code null}: without a login. */
    private final Supplier<String> password;
    private final int database;
    private final String clientName;
    /** {@code null}: without TLS. */
    final TlsSettings tls;

    Profile(String user, Supplier<String> password, int database, String clientName, TlsSettings tls) {
        this.user = user;
        this.password = password;
        this.database = database;
        this.clientName = clientName;
        this.tls = tls;
    }

    Profile(String user, String password, int database, String clientName, TlsSettings tls) {
        this(user, password == null ? null : () -> password, database, clientName, tls);
    }

    /** Returns what a new connection sends first. */
    Greeting greeting() {
        List<byte[]> hello = new ArrayList<>(Words.of("HELLO", "3"));
        if (password != null) {
            String secret = Objects.requireNonNull(password.get(), "the provider has no password");
            hello.addAll(Words.of("AUTH", user == null ? "default" : user, secret));
        }
        hello.addAll(Words.of("SETNAME", clientName));
        byte[][] select = database == 0 ? null : Words.command("SELECT", database);
        return new Greeting(hello.toArray(new byte[0][]), select);
    }

    /** The commands with which a connection begins. */
    static final class Greeting {
        final byte[][] hello;
        /** Selects the database; {@code null}: it is the first one. */
        final byte[][] select;

        private Greeting(byte[][] hello, byte[][] select) {
            this.hello = hello;
            this.select = select;
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof Greeting && Arrays.deepEquals(hello, ((Greeting) other).hello)
                    && Arrays.deepEquals(select, ((Greeting) other).select);
        }

        @Override
        public int hashCode() {
            return Arrays.deepHashCode(hello);
        }
    }
}
