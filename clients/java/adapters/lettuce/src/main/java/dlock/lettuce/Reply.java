package dlock.lettuce;

import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.output.CommandOutput;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;

/** Any reply: {@code null}, a {@code Long}, {@code byte[]}, or a list of these. A map of RESP3 is a list, too. */
final class Reply extends CommandOutput<byte[], byte[], Object> {
    /** A list that is being read, and how many values it will have. */
    private static final class Open {
        final List<Object> values = new ArrayList<>();
        final int count;

        Open(int count) {
            this.count = count;
        }
    }

    /** The lists that are not complete, the innermost first. */
    private final ArrayDeque<Open> open = new ArrayDeque<>();

    Reply() {
        super(ByteArrayCodec.INSTANCE, null);
    }

    @Override
    public void set(ByteBuffer bytes) {
        byte[] value = null;
        if (bytes != null) {
            value = new byte[bytes.remaining()];
            bytes.get(value);
        }
        add(value);
    }

    @Override
    public void set(long integer) {
        add(integer);
    }

    @Override
    public void multi(int count) {
        if (count < 0) {
            add(null);
        } else if (count == 0) {
            add(new ArrayList<>());
        } else {
            open.push(new Open(count));
        }
    }

    @Override
    public void multiMap(int count) {
        multi(count < 0 ? count : 2 * count);
    }

    /** Adds a value to the innermost list. A list that this completes is a value of the list around it. */
    private void add(Object value) {
        Object complete = value;
        while (!open.isEmpty()) {
            Open list = open.peek();
            list.values.add(complete);
            if (list.values.size() < list.count) {
                return;
            }
            complete = open.pop().values;
        }
        output = complete;
    }
}
