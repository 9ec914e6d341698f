// Wait in the queue: one command on a connection of its own.
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
	dlock(client, "ACQUIRE", "recipe:wait", "alice", "PX", 200) // her lease ends in a moment

	line := connect() // without DialReadTimeout
	token := dlock(line, "ACQUIRE", "recipe:wait", "bob", "PX", 30000, "BLOCK", 60000, "REQUEST", "1")
	line.Close()

	if token != 0 { // 0: the 60 seconds are over
		fmt.Println("bob: granted after waiting")
		dlock(client, "RELEASE", "recipe:wait", "bob", "TOKEN", token)
	}
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
