// Readers share a lock, a writer excludes all others.
package main

import (
	"fmt"
	"log"
	"net"
	"os"

	"github.com/gomodule/redigo/redis"
)

func main() {
	client := connect()
	defer client.Close()

	alice := dlock(client, "RLOCK", "recipe:read_write", "alice", "PX", 30000)
	bob := dlock(client, "RLOCK", "recipe:read_write", "bob", "PX", 30000)
	if alice != 0 && bob != 0 {
		fmt.Println("alice and bob: reading")
	}
	if dlock(client, "WLOCK", "recipe:read_write", "carol", "PX", 30000) == 0 {
		fmt.Println("carol: not granted")
	}

	dlock(client, "RELEASE", "recipe:read_write", "alice", "TOKEN", alice)
	dlock(client, "RELEASE", "recipe:read_write", "bob", "TOKEN", bob)
	carol := dlock(client, "WLOCK", "recipe:read_write", "carol", "PX", 30000)
	if carol != 0 {
		fmt.Println("carol: writing")
	}
	dlock(client, "RELEASE", "recipe:read_write", "carol", "TOKEN", carol)
}

func connect() redis.Conn {
	address := net.JoinHostPort(env("DLOCK_TEST_HOST", "127.0.0.1"), env("DLOCK_TEST_PORT", "6379"))
	connection, err := redis.Dial("tcp", address)
	if err != nil {
		log.Fatal(err)
	}
	return connection
}

func env(name, otherwise string) string {
	if value, set := os.LookupEnv(name); set {
		return value
	}
	return otherwise
}

// dlock returns an integer, or 0 for nil.
func dlock(connection redis.Conn, command string, arguments ...interface{}) int64 {
	reply, err := redis.Int64(connection.Do("DLOCK."+command, arguments...))
	if err != nil && err != redis.ErrNil {
		log.Fatal(err)
	}
	return reply
}
