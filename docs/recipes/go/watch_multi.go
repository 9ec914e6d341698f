// A transaction that takes effect only if the lock is still held: WATCH the lock, check it, then MULTI.
package main

import (
	"fmt"
	"log"
	"net"
	"os"

	"github.com/gomodule/redigo/redis"
)

func main() {
	client, other := connect(), connect()
	defer client.Close()
	defer other.Close()

	token := dlock(client, "ACQUIRE", "recipe:watch_multi", "alice", "PX", 30000)
	if write(client, token, "one", func() {}) {
		fmt.Println("alice: written")
	}
	if !write(client, token, "two", func() { run(other, "DEL", "recipe:watch_multi") }) {
		fmt.Println("alice: not written, the lock was lost")
	}
}

func write(client redis.Conn, token int64, value string, meanwhile func()) bool {
	run(client, "WATCH", "recipe:watch_multi")
	if dlock(client, "CHECK", "recipe:watch_multi", token) == 0 {
		run(client, "UNWATCH")
		return false
	}
	meanwhile()
	run(client, "MULTI")
	run(client, "SET", "recipe:value", value)
	return run(client, "EXEC") != nil
}

func run(connection redis.Conn, command string, arguments ...interface{}) interface{} {
	reply, err := connection.Do(command, arguments...)
	if err != nil {
		log.Fatal(err)
	}
	return reply
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
