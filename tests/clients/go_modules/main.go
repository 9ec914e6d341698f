// The program of a new user of the Go modules for other packages: acquires a lock over the connections of each Redis
// client, and runs a job of each scheduler while it holds a lock.
package main

import (
	"context"
	"fmt"
	"log"

	dlock "dlock.example/dlock/clients/go"
	"dlock.example/dlock/clients/go/cron"
	"dlock.example/dlock/clients/go/gocron"
	"dlock.example/dlock/clients/go/goredis"
	"dlock.example/dlock/clients/go/redigo"
	"dlock.example/dlock/clients/go/rueidis"
	gocronjobs "github.com/go-co-op/gocron/v2"
	redigopool "github.com/gomodule/redigo/redis"
	goredisclient "github.com/redis/go-redis/v9"
	rueidisclient "github.com/redis/rueidis"
	cronjobs "github.com/robfig/cron/v3"
)

const address = "127.0.0.1:6379"

func main() {
	ctx := context.Background()
	other, err := rueidisclient.NewClient(rueidisclient.ClientOption{InitAddress: []string{address}})
	must(err)
	defer other.Close()
	pool := &redigopool.Pool{Dial: func() (redigopool.Conn, error) { return redigopool.Dial("tcp", address) }}
	var clients []*dlock.Client
	for _, open := range []func(context.Context) (dlock.Conn, error){
		goredis.Connections(goredisclient.NewClient(&goredisclient.Options{Addr: address})),
		redigo.Connections(pool),
		rueidis.Connections(other, 0),
	} {
		client, err := dlock.Over(open)
		must(err)
		clients = append(clients, client)
	}
	for _, client := range clients {
		lock, err := client.Lock(ctx, "job:1")
		must(err)
		must(lock.Unlock(ctx))
	}

	ran := make(chan bool)
	scheduler, err := gocronjobs.NewScheduler(gocronjobs.WithDistributedLocker(gocron.Locker(clients[0])))
	must(err)
	_, err = scheduler.NewJob(gocronjobs.OneTimeJob(gocronjobs.OneTimeJobStartImmediately()),
		gocronjobs.NewTask(func() { ran <- true }), gocronjobs.WithName("job:2"))
	must(err)
	scheduler.Start()
	<-ran
	must(scheduler.Shutdown())

	cronjobs.NewChain(cron.Locked(clients[1], "job:3", cronjobs.DefaultLogger)).Then(cronjobs.FuncJob(func() {
		lock, err := clients[2].Lock(ctx, "job:4")
		must(err)
		fmt.Println("the fencing token is", lock.Token())
		must(lock.Unlock(ctx))
	})).Run()
	for _, client := range clients {
		must(client.Close())
	}
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
