package dlock;

/** The settings of a connection, except its address. */
final class Login {
    final String user;
    final String password;
    final int database;
    final String clientName;
    /** {@code null}: without TLS. */
    final TlsSettings tls;

    Login(String user, String password, int database, String clientName, TlsSettings tls) {
        this.user = user;
        this.password = password;
        this.database = database;
        this.clientName = clientName;
        this.tls = tls;
    }
}
