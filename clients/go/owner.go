package dlock

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
)

const (
	// The longest owner, in bytes.
	longestOwner = 64
	// The part that makes an owner unique, behind a ":".
	randomEnd = 16
	// The longest label that a program chooses.
	longestLabel = longestOwner - randomEnd - 1
)

// WithOwner sets what the name of the holder begins with, which [Holder] and `dlock info` show: 47 bytes at most. A random
// end follows, because each acquisition is an owner of its own. The default is HOST:PID:N, N counting the acquisitions of
// the program. Everybody who may look at the lock sees it.
func WithOwner(label string) Option { return func(t *terms) { t.label = label } }

func checkLabel(label string) error {
	if len(label) > longestLabel {
		return fmt.Errorf("dlock: the label of an owner has %d bytes at most, not %d", longestLabel, len(label))
	}
	if strings.ContainsFunc(label, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return errors.New("dlock: the label of an owner has a control character")
	}
	return nil
}

// process is what the owners of this program begin with: HOST:PID.
var process = func() string {
	host, _ := os.Hostname()
	host = strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' || r == ':' {
			return '?'
		}
		return r
	}, host)
	return fmt.Sprintf("%.20s:%d", host, os.Getpid())
}()

var acquisitions atomic.Uint64

// newOwner returns an owner that nobody else has.
func newOwner(label string) string {
	if label == "" {
		label = fmt.Sprintf("%s:%d", process, acquisitions.Add(1))
		label = label[:min(len(label), longestLabel)]
	}
	return label + ":" + random(randomEnd/2)
}

// unique returns a name that nobody else has.
func unique() string { return random(16) }

func random(bytes int) string {
	some := make([]byte, bytes)
	rand.Read(some) // Read never fails on a system that runs Go 1.23 (it ends the program if it does).
	return hex.EncodeToString(some)
}
