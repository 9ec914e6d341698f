package dlock_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	dlock "dlock.example/dlock/clients/go"
	"dlock.example/dlock/clients/go/internal/ports"
)

// certificate writes a certificate for 127.0.0.1 that is its own authority, and its key. It returns what clients need.
func certificate(t *testing.T, home string) (*tls.Config, []string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "dlock"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed})
	private := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret})
	certFile, keyFile := filepath.Join(home, "cert"), filepath.Join(home, "key")
	for file, text := range map[string][]byte{certFile: public, keyFile: private} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	own, err := tls.X509KeyPair(public, private)
	if err != nil {
		t.Fatal(err)
	}
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(public)
	return &tls.Config{RootCAs: authorities, Certificates: []tls.Certificate{own}},
		[]string{"--tls-cert-file", certFile, "--tls-key-file", keyFile, "--tls-ca-cert-file", certFile}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	said, _ := exec.Command(os.Getenv("DLOCK_SERVER"), "--port", "0", "--tls-port", "1", "--tls-cert-file", "/none").CombinedOutput()
	if strings.Contains(string(said), "Bad directive") {
		t.Skip("skipped: TLS: the server is built without it")
	}
	port := ports.Free()
	config, files := certificate(t, t.TempDir())
	s := startServer(t, append(files, "--tls-port", fmt.Sprint(port), "--tls-auth-clients", "yes")...)
	s.call("ACL", "SETUSER", "worker", "on", ">secret", "~*", "+@all")
	at := fmt.Sprintf("rediss://worker:secret@127.0.0.1:%d", port)
	client := newClient(t, at, dlock.WithTLS(config))
	lock := acquire(t, client, "job")
	waited := make(chan error)
	go func() {
		next, err := client.Lock(context.Background(), "job")
		if err == nil {
			err = unlock(next)
		}
		waited <- err
	}()
	s.waiters(1)
	release(t, lock)
	if err := <-waited; err != nil {
		t.Fatal(err)
	}
	newOther(s).holds()
	s.cleansUpAtOnce(client)

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err := newClient(t, at).Lock(ctx, "job")
	var unknown *tls.CertificateVerificationError
	if !errors.Is(err, dlock.ErrUnreachable) || !errors.As(err, &unknown) {
		t.Fatalf("an unknown certificate: %v", err)
	}
}

func TestAHandshakeThatHangsEndsInTime(t *testing.T) {
	t.Parallel()
	client := newClient(t, startSilent(t), dlock.WithTLS(nil))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		_, err := client.Lock(ctx, "job")
		ended <- err
	}()
	time.Sleep(200 * time.Millisecond) // The handshake has begun.
	watch := startWatch()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatalf("the error is %v", err)
	}
	watch.within(t, 100*time.Millisecond, "a cancellation")
	watch = startWatch()
	if _, err := client.Lock(context.Background(), "job", dlock.WithWait(300*time.Millisecond)); !errors.Is(err, dlock.ErrUnreachable) {
		t.Fatalf("the error is %v", err)
	}
	watch.within(t, 550*time.Millisecond, "a wait")
}
