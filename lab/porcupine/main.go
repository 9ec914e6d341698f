// Command porcupine checks with github.com/anishathalye/porcupine, which others have written, whether histories of
// locks are linearizable. README.md says how to use it.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// patience is how long the check of one lock may take. After that, there is no verdict on the lock.
const patience = time.Minute

func main() {
	one := flag.Bool("one", false, "the histories are of one server: tokens rise over all its locks")
	edn := flag.Bool("edn", false, "write the history in the form of Knossos and Elle instead")
	flag.Parse()
	bad := 0
	for _, name := range flag.Args() {
		lines, err := read(name)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		if *edn {
			writeEDN(os.Stdout, lines)
			continue
		}
		// check sorts the lines as firstLowToken needs them.
		bad += check(name, lines)
		if o := firstLowToken(lines); *one && o != nil {
			bad++
			fmt.Printf("VIOLATION: %s: the token of %s on %s is no higher than one before\n", name, o.Process, o.Lock)
		}
	}
	if bad > 0 {
		os.Exit(1)
	}
}

// read returns the operations of a file, one in each line.
func read(name string) ([]op, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var lines []op
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, 1<<20) // the longest line: 1 MiB
	for scanner.Scan() {
		var o op
		if err := json.Unmarshal(scanner.Bytes(), &o); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", name, scanner.Text(), err)
		}
		if why := o.invalid(); why != "" {
			return nil, fmt.Errorf("%s: %q: %s", name, scanner.Text(), why)
		}
		lines = append(lines, o)
	}
	return lines, scanner.Err()
}

// results has the operations that the model knows, each with its possible results.
var results = map[string][]string{
	"acquire": {"granted", "refused", "unknown"},
	"held":    {"held"},
	"lost":    {"lost"},
	"release": {"released", "lost", "unknown"},
}

// invalid returns what is wrong with a line, or an empty string. A wrong line must be an error, because the model would
// take it for another operation.
func (o op) invalid() string {
	switch {
	case !slices.Contains(results[o.Op], o.Result):
		return "no such operation, or no such result of it"
	case !slices.Contains([]string{"exclusive", "write", "read", "permit"}, o.Mode):
		return "no such mode"
	case o.Return == nil && o.Result != "unknown" && o.Op != "lost":
		return "a result without a time"
	case o.Token == 0 && o.Op != "acquire" || o.Token == 0 && o.Result == "granted":
		return "no token"
	}
	return ""
}

// firstLowToken returns the first grant whose token is too low. On one server, a token is higher than that of every
// grant, of any lock, whose reply came before this request was sent. Locks that are acquired together may share a
// token: none of these grants came before the other. The lines must be in the order of their calls.
func firstLowToken(lines []op) *op {
	var grants []op
	for _, o := range lines {
		if o.Result == "granted" {
			grants = append(grants, o)
		}
	}
	over := slices.Clone(grants)
	slices.SortFunc(over, func(a, b op) int { return cmp.Compare(*a.Return, *b.Return) })
	held := map[string]uint64{}
	highest, at := uint64(0), 0
	for _, o := range grants {
		for ; at < len(over) && *over[at].Return < o.Call; at++ {
			highest = max(highest, over[at].Token)
		}
		// An owner that enters again keeps its token. Without owners in the history, no acquisition enters again.
		if again := o.Lock + " " + o.who(); o.Owner == "" || held[again] != o.Token {
			if o.Token <= highest {
				return &o
			}
			held[again] = o.Token
		}
	}
	return nil
}

// check judges each lock by itself. It returns the number of locks whose history no order of operations explains, or
// that have no verdict in time. It sorts the lines by the times of their calls.
func check(name string, lines []op) int {
	locks := map[string][]op{}
	slices.SortStableFunc(lines, func(a, b op) int { return cmp.Compare(a.Call, b.Call) })
	for _, o := range lines {
		locks[o.Lock] = append(locks[o.Lock], o)
	}
	ops, unknown, bad := 0, 0, 0
	for lock, its := range locks {
		history := operations(its)
		ops += len(history)
		switch porcupine.CheckOperationsTimeout(model, history, patience) {
		case porcupine.Illegal:
			bad++
			fmt.Printf("VIOLATION: %s: the history of %s is not linearizable\n", name, lock)
		case porcupine.Unknown:
			bad++
			unknown++
			fmt.Printf("NO VERDICT: %s: the check of the history of %s took longer than %v\n", name, lock, patience)
		}
	}
	fmt.Printf("%s: %d locks, %d operations, %d without a verdict, %d violations\n", name, len(locks), ops, unknown, bad-unknown)
	return bad
}
