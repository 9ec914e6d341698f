// A write that a database rejects if a later owner of the lock has written.
package main

import (
	"database/sql"
	"fmt"
	"log"
	"net"
	"os"

	"github.com/gomodule/redigo/redis"
	_ "github.com/mattn/go-sqlite3"
)

func main() {
	client := connect()
	defer client.Close()
	database, err := sql.Open("sqlite3", ":memory:")
	if err != nil {
		log.Fatal(err)
	}
	database.SetMaxOpenConns(1) // in memory: one connection, one database
	execute(database, "CREATE TABLE report (id INTEGER PRIMARY KEY, body TEXT, fence INTEGER NOT NULL)")
	execute(database, "INSERT INTO report VALUES (1, '', 0)")
	write := func(body string, token int64) bool {
		return execute(database, "UPDATE report SET body = ?1, fence = ?2 WHERE id = 1 AND fence <= ?2", body, token) == 1
	}

	alice := dlock(client, "ACQUIRE", "recipe:fencing", "alice", "PX", 30000)
	if _, err := client.Do("DEL", "recipe:fencing"); err != nil { // her lease ended while she was paused
		log.Fatal(err)
	}
	bob := dlock(client, "ACQUIRE", "recipe:fencing", "bob", "PX", 30000)

	if write("by bob", bob) {
		fmt.Println("bob: written")
	}
	if !write("by alice", alice) {
		fmt.Println("alice: refused, her token is the older one")
	}
	dlock(client, "RELEASE", "recipe:fencing", "bob", "TOKEN", bob)
}

func execute(database *sql.DB, statement string, arguments ...interface{}) int64 {
	result, err := database.Exec(statement, arguments...)
	if err != nil {
		log.Fatal(err)
	}
	rows, err := result.RowsAffected()
	if err != nil {
		log.Fatal(err)
	}
	return rows
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
