package dlock;

import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLParameters;

/** How to speak TLS: whom to trust, and that the certificate has to be for the host that is connected to. */
final class TlsSettings {
    private final SSLContext context;

    TlsSettings(SSLContext context) {
        this.context = context;
    }

    SSLEngine engine(String host, int port) {
        SSLEngine engine = context.createSSLEngine(host, port);
        engine.setUseClientMode(true);
        SSLParameters parameters = engine.getSSLParameters();
        parameters.setEndpointIdentificationAlgorithm("HTTPS");
        engine.setSSLParameters(parameters);
        return engine;
    }
}
