// Renew a lease while the work goes on.
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
	token := dlock(client, "ACQUIRE", "recipe:renew", "alice", "PX", 10000)

	// Send this whenever about a third of the lease has passed. Without a lease, it keeps the one it has.
	if dlock(client, "RENEW", "recipe:renew", "alice", "TOKEN", token) == 1 {
		fmt.Println("renewed")
	}
	dlock(client, "RELEASE", "recipe:renew", "alice", "TOKEN", token)
	// The lock is lost: stop the work. A renewal never acquires a lock.
	if dlock(client, "RENEW", "recipe:renew", "alice", "TOKEN", token) == 0 {
		fmt.Println("nothing to renew")
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
