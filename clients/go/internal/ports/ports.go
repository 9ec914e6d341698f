// Package ports gives ports to the servers of tests.
package ports

import (
	"fmt"
	"net"
	"os"
	"sync"
)

var (
	mu sync.Mutex
	// Processes with adjacent ids begin their search far apart.
	next = os.Getpid() * 97
	// The UDP sockets that reserve the ports of this process. CONTRIBUTING.md tells the rule for all suites.
	held []net.PacketConn
)

// Free returns a port where nobody listens, and which no other suite takes while this process runs.
func Free() int {
	mu.Lock()
	defer mu.Unlock()
	for {
		port := 11_000 + next%10_000
		next++
		at := fmt.Sprintf("127.0.0.1:%d", port)
		holder, err := net.ListenPacket("udp", at)
		if err != nil {
			continue
		}
		listener, err := net.Listen("tcp", at)
		if err != nil {
			holder.Close()
			continue
		}
		listener.Close()
		held = append(held, holder)
		return port
	}
}
