package dlock;

import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLParameters;

/** TLS with an {@link SSLContext}. The server's certificate must be valid for the host. */
final class TlsSettings {
    private final SSLContext context;

    TlsSettings(SSLContext context) {
        this.context = context;
    }

    SSLEngine engine(String host, int port) {
        SSLEngine engine = context.createSSLEngine(host, port);
        engine.setUseClientMode(true);
        SSLParameters parameters = engine.getSSLParameters();
        // Compares the certificate with the host, by the rules of HTTPS.
        parameters.setEndpointIdentificationAlgorithm("HTTPS");
        engine.setSSLParameters(parameters);
        return engine;
    }
}
