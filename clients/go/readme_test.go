package dlock_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestReadme runs the first program of the README with the commands of the README, and compiles the other examples.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```(go|sh)\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	if len(blocks) < 2 || blocks[0][1] != "go" || blocks[1][1] != "sh" {
		t.Fatalf("the README does not begin with a program in Go and its commands for sh: %q", blocks)
	}
	checkout, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	program := strings.ReplaceAll(blocks[0][2], "redis://127.0.0.1:6379", address)
	if err := os.WriteFile(filepath.Join(directory, "main.go"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.Command("sh", "-euc", strings.ReplaceAll(blocks[1][2], "CHECKOUT", checkout))
	command.Dir = directory
	said, err := command.CombinedOutput()
	if err != nil || !regexp.MustCompile(`the fencing token is \d+\n$`).Match(said) {
		t.Fatalf("%v: %s", err, said)
	}
	for _, block := range blocks[2:] {
		if block[1] != "go" {
			t.Fatalf("only the first block of sh is run, and not this one: %s", block[2])
		}
		compile(t, directory, block[2])
	}
}

// stubs declare what the examples use of modules that the test does not fetch.
var stubs = map[string]string{
	"gocron": `import "context"

type Lock interface{ Unlock(context.Context) error }`,
	// Options and ClusterOptions of github.com/redis/go-redis/v9.
	"redis": `import (
	"context"
	"crypto/tls"
	"net"
)

type Options struct {
	Addr, Username, Password string
	DB                       int
	Dialer                   func(ctx context.Context, network, addr string) (net.Conn, error)
}

type ClusterOptions struct {
	Addrs              []string
	Username, Password string
	Dialer             func(ctx context.Context, network, addr string) (net.Conn, error)
	TLSConfig          *tls.Config
}`,
	// ClientOption of github.com/redis/rueidis, its dedicated clients, and their commands.
	"rueidis": `import (
	"context"
	"crypto/tls"
	"net"
)

type ClientOption struct {
	InitAddress        []string
	Username, Password string
	SelectDB           int
	Dialer             net.Dialer
	TLSConfig          *tls.Config
	DialCtxFn          func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error)
	Sentinel           struct{ MasterSet, Username, Password string }
}

type Builder struct{}

func (Builder) Arbitrary(token ...string) Arbitrary { return Arbitrary{} }

type Arbitrary struct{}

func (Arbitrary) Blocking() Completed { return Completed{} }

type Completed struct{}

type RedisResult struct{}

func (RedisResult) ToAny() (v any, err error) { return nil, nil }
func (RedisResult) NonRedisError() error      { return nil }

func IsRedisNil(err error) bool { return false }

type Client interface {
	Dedicate() (client DedicatedClient, cancel func())
}

type DedicatedClient interface {
	B() Builder
	Do(ctx context.Context, cmd Completed) (resp RedisResult)
	DoMulti(ctx context.Context, multi ...Completed) (resp []RedisResult)
	Close()
}`,
}

// compile compiles an example in the module of the README: declarations as they are, statements in a function.
func compile(t *testing.T, directory, example string) {
	t.Helper()
	if !strings.HasPrefix(example, "type ") && !strings.HasPrefix(example, "func ") {
		example = "func example(ctx context.Context, client *dlock.Client) error {\n" + example + "return nil\n}\n"
	}
	files := map[string]string{"main.go": `package main

import (
	"context"
	"fmt"
	"net"

	dlock "dlock.example/dlock/clients/go"
	"example.com/first/gocron"
	"example.com/first/redis"
	"example.com/first/rueidis"
)

var (
	_ gocron.Lock
	_ redis.Options
	_ rueidis.ClientOption
	_ net.Conn
)

func work(context.Context, int64) error { return nil }

func main() { fmt.Println() }

` + example}
	for name, text := range stubs {
		files[filepath.Join(name, name+".go")] = "package " + name + "\n\n" + text + "\n"
	}
	for name, text := range files {
		path := filepath.Join(directory, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.Command("go", "build", "-o", os.DevNull, ".")
	command.Dir = directory
	if said, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s\n%s", err, said, example)
	}
}
