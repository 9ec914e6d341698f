package dlock;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.util.ArrayDeque;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLEngineResult;
import javax.net.ssl.SSLEngineResult.HandshakeStatus;

/** Moves bytes over a non-blocking socket, plain or in TLS. One thread at a time uses a wire. */
abstract class Wire {
    final SocketChannel channel;

    Wire(SocketChannel channel) {
        this.channel = channel;
    }

    /**
     * Sends as much as the socket takes. Returns whether nothing waits for room in the socket buffer. During a TLS
     * handshake that is true although {@code outgoing} is not empty: the rest goes out when the server's next bytes
     * were read.
     */
    abstract boolean write(ArrayDeque<ByteBuffer> outgoing) throws IOException;

    /** Reads into the empty buffer. Returns the number of bytes, 0 if none are available, -1 at the end. */
    abstract int read(ByteBuffer into) throws IOException;

    /**
     * Returns whether there may be more to read after a read.
     *
     * @param isFull whether the read filled the buffer
     */
    abstract boolean mayHaveMore(boolean isFull);

    /** Ends the sending side. Everything must have been written. */
    abstract void finish() throws IOException;

    /** Returns the size in bytes of the buffer for {@link #read}. */
    abstract int readSize();

    static final class Plain extends Wire {
        Plain(SocketChannel channel) {
            super(channel);
        }

        @Override
        boolean write(ArrayDeque<ByteBuffer> outgoing) throws IOException {
            for (ByteBuffer next; (next = outgoing.peek()) != null; outgoing.remove()) {
                channel.write(next);
                if (next.hasRemaining()) {
                    return false;
                }
            }
            return true;
        }

        @Override
        int read(ByteBuffer into) throws IOException {
            return channel.read(into);
        }

        @Override
        boolean mayHaveMore(boolean isFull) {
            return isFull;
        }

        @Override
        void finish() throws IOException {
            channel.shutdownOutput();
        }

        @Override
        int readSize() {
            return 16 << 10;
        }
    }

    static final class Tls extends Wire {
        private static final ByteBuffer NOTHING = ByteBuffer.allocate(0);

        private final SSLEngine engine;
        /** Encrypted input. Ready for bytes to be put in, except inside {@link #read}. */
        private ByteBuffer received;
        /** Encrypted output that the socket has not taken. Ready for bytes to be taken out, except in {@link #wrap}. */
        private final ByteBuffer unsent;

        Tls(SocketChannel channel, SSLEngine engine) throws IOException {
            super(channel);
            this.engine = engine;
            received = ByteBuffer.allocate(engine.getSession().getPacketBufferSize());
            unsent = ByteBuffer.allocate(engine.getSession().getPacketBufferSize());
            unsent.flip();
            engine.beginHandshake();
        }

        @Override
        boolean write(ArrayDeque<ByteBuffer> outgoing) throws IOException {
            if (!handshake()) {
                return !unsent.hasRemaining();
            }
            for (ByteBuffer next; (next = outgoing.peek()) != null; ) {
                if (!wrap(next)) {
                    return false;
                }
                if (!next.hasRemaining()) {
                    outgoing.remove();
                }
            }
            return flush();
        }

        @Override
        int read(ByteBuffer into) throws IOException {
            for (;;) {
                received.flip();
                SSLEngineResult result = engine.unwrap(received, into);
                received.compact();
                switch (result.getStatus()) {
                    case OK:
                        handshake();
                        if (result.bytesProduced() > 0) {
                            return result.bytesProduced();
                        }
                        if (result.bytesConsumed() > 0 || !waitsForInput()) {
                            continue;
                        }
                        break;
                    case BUFFER_UNDERFLOW:
                        // A record that is longer than the buffer needs a larger one.
                        if (!received.hasRemaining()) {
                            received.flip();
                            received = ByteBuffer.allocate(2 * received.capacity()).put(received);
                        }
                        break;
                    case CLOSED:
                        return -1;
                    default:
                        throw new IOException("TLS: " + result.getStatus());
                }
                int count = channel.read(received);
                if (count <= 0) {
                    return count;
                }
            }
        }

        /** {@link #received} may already have one more record, which the selector does not see. */
        @Override
        boolean mayHaveMore(boolean isFull) {
            return true;
        }

        @Override
        void finish() throws IOException {
            engine.closeOutbound();
            wrap(NOTHING);
            channel.shutdownOutput();
        }

        @Override
        int readSize() {
            // A decrypted record must fit, or `unwrap` fails with BUFFER_OVERFLOW.
            return engine.getSession().getApplicationBufferSize() + 1024;
        }

        /** Returns whether only bytes of the server bring this wire on: the handshake needs them, or is complete. */
        private boolean waitsForInput() {
            HandshakeStatus status = engine.getHandshakeStatus();
            return status == HandshakeStatus.NEED_UNWRAP || status == HandshakeStatus.NOT_HANDSHAKING;
        }

        /** Continues the handshake until it needs input. Returns whether it is complete. */
        private boolean handshake() throws IOException {
            for (;;) {
                switch (engine.getHandshakeStatus()) {
                    case NEED_TASK:
                        for (Runnable task; (task = engine.getDelegatedTask()) != null; ) {
                            task.run();
                        }
                        break;
                    case NEED_WRAP:
                        if (!wrap(NOTHING)) {
                            return false;
                        }
                        break;
                    case NEED_UNWRAP:
                        flush();
                        return false;
                    default:
                        return true;
                }
            }
        }

        /** Encrypts one record and sends it, unless earlier output is unsent. Returns whether it encrypted a record. */
        private boolean wrap(ByteBuffer plain) throws IOException {
            if (!flush()) {
                return false;
            }
            unsent.clear();
            SSLEngineResult result = engine.wrap(plain, unsent);
            unsent.flip();
            if (result.getStatus() == SSLEngineResult.Status.BUFFER_OVERFLOW) {
                throw new IOException("TLS: " + result.getStatus());
            }
            if (result.getStatus() == SSLEngineResult.Status.CLOSED && plain != NOTHING) {
                throw new IOException("TLS: closed by the server");
            }
            flush();
            return true;
        }

        /** Sends encrypted output. Returns whether the socket has taken all of it. */
        private boolean flush() throws IOException {
            if (unsent.hasRemaining()) {
                channel.write(unsent);
            }
            return !unsent.hasRemaining();
        }
    }
}
