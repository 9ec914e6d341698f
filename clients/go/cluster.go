package dlock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

const slots = 16384

// NewCluster returns a client for a cluster, which it gets to know by the nodes at these addresses ("host:port"). A lock
// is on the node that has the slot of its name, and goes where the slot goes. Several locks, or the permits of a
// semaphore, have to be in one slot: put the same part of their names into braces.
func NewCluster(nodes []string, options ...ClientOption) (*Client, error) {
	if len(nodes) == 0 {
		return nil, errors.New("dlock: the address of a node is needed")
	}
	s, addresses, err := parseAll(nodes, "6379", options)
	if err != nil {
		return nil, err
	}
	if s.profile.database != 0 {
		return nil, errors.New("dlock: a cluster has only database 0")
	}
	r := &cluster{profile: s.profile, seeds: addresses, directory: newDirectory()}
	return newClient(s, r)
}

// cluster is the router that knows the nodes by their slots.
type cluster struct {
	profile   profile
	seeds     []string
	directory directory

	mu    sync.Mutex
	nodes [slots]string
	asked time.Time
}

func (c *cluster) find(ctx context.Context, key string, again bool, until time.Time) (string, error) {
	slot := slotOf(key)
	if node, ok := c.remembered(slot, again); ok {
		return node, nil
	}
	err := c.directory.find(ctx, until, func() bool {
		_, ok := c.remembered(slot, again)
		return ok
	}, c.known, c.ask)
	if node, ok := c.remembered(slot, false); ok && ctx.Err() == nil {
		return node, nil
	}
	if err == nil {
		err = errors.New("it has no node")
	}
	return "", fmt.Errorf("no node says which has slot %d: %w", slot, err)
}

// remembered returns the node of a slot, if it is known. `again`: the caller could not use what was known, so the
// answer of a node has to be fresh.
func (c *cluster) remembered(slot int, again bool) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[slot], c.nodes[slot] != "" && (!again || time.Since(c.asked) < freshFor)
}

// known returns the nodes to ask, each once.
func (c *cluster) known() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := map[string]bool{}
	var all []string
	for _, address := range append(c.nodes[:len(c.nodes):len(c.nodes)], c.seeds...) {
		if address != "" && !seen[address] {
			seen[address] = true
			all = append(all, address)
		}
	}
	return all
}

func (c *cluster) ask(ctx context.Context, address string, until time.Time) error {
	at, err := c.profile.connect(ctx, address, until)
	if err != nil {
		return err
	}
	defer at.close()
	replies, err := at.exchange(ctx, until, nil, command{"CLUSTER", "SLOTS"})
	if err != nil {
		return err
	}
	ranges, ok := replies[0].([]any)
	if !ok {
		return fmt.Errorf("the node at %s has no map of slots: %v", address, replies[0])
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, each := range ranges {
		c.take(each, address)
	}
	c.asked = time.Now()
	return nil
}

// take learns the primary of a range: [first, last, [host, port, …], replica…].
func (c *cluster) take(entry any, by string) {
	words, ok := entry.([]any)
	if !ok || len(words) < 3 {
		return
	}
	first, isFirst := words[0].(int64)
	last, isLast := words[1].(int64)
	node, isNode := words[2].([]any)
	if !isFirst || !isLast || !isNode || len(node) < 2 || first < 0 || last >= slots {
		return
	}
	host, _ := node[0].(string)
	port, isPort := node[1].(int64)
	if !isPort {
		return
	}
	address := withHost(host+":"+strconv.FormatInt(port, 10), by)
	for slot := first; slot <= last; slot++ {
		c.nodes[slot] = address
	}
}

// withHost completes ":port", which is a port of the node that was asked.
func withHost(address, by string) string {
	at := strings.LastIndexByte(address, ':')
	host, port := address[:at], address[at+1:]
	if host == "" || host == "?" {
		host, _, _ = net.SplitHostPort(by)
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), port)
}

// redirect learns from "MOVED slot host:port". Nothing is learned from ASK: the node still hands the slot over, and
// says MOVED when that is done.
func (c *cluster) redirect(_ string, answer ServerError) {
	words := strings.Fields(string(answer))
	if len(words) < 3 || words[0] != "MOVED" {
		return
	}
	slot, err := strconv.Atoi(words[1])
	if err != nil || slot < 0 || slot >= slots || strings.LastIndexByte(words[2], ':') < 1 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes[slot] = withHost(words[2], c.seeds[0])
	c.asked = time.Now()
}

// slotOf returns the slot of a key: of the part between the first braces, if there is one.
func slotOf(key string) int {
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if length := strings.IndexByte(key[open+1:], '}'); length > 0 {
			key = key[open+1 : open+1+length]
		}
	}
	var sum uint16 // CRC16, XMODEM
	for i := range len(key) {
		sum ^= uint16(key[i]) << 8
		for range 8 {
			if sum&0x8000 != 0 {
				sum = sum<<1 ^ 0x1021
			} else {
				sum <<= 1
			}
		}
	}
	return int(sum) % slots
}
