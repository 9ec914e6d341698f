package dlock_test

import (
	"context"
	"testing"
	"time"

	dlock "dlock.example/dlock/clients/go"
	"dlock.example/dlock/clients/go/internal/lending"
)

func TestOverConnectionsOfAnotherClient(t *testing.T) {
	lending.Test(t, func(address string) (func(context.Context) (dlock.Conn, error), func()) {
		return dlock.Wired(address), func() {}
	})
}

func TestOptionsThatAreThoseOfTheOtherClientAreRefused(t *testing.T) {
	t.Parallel()
	for name, option := range map[string]dlock.ClientOption{
		"user": dlock.WithAuth("worker", ""), "database": dlock.WithDatabase(1), "TLS": dlock.WithTLS(nil),
	} {
		if client, err := dlock.Over(dlock.Wired(""), option); err == nil {
			client.Close()
			t.Errorf("%s is accepted", name)
		}
	}
	client, err := dlock.Over(dlock.Wired(""), dlock.WithDefaults(dlock.WithLease(time.Minute)))
	if err != nil {
		t.Fatal(err)
	}
	client.Close()
}
