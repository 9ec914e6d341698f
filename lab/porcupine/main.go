// Command porcupine asks a checker that is not ours, github.com/anishathalye/porcupine, whether histories of locks are
// linearizable: README.md.
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

// patience is how long a lock may take before there is no verdict on it.
const patience = time.Minute

func main() {
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
		bad += check(name, lines)
	}
	if bad > 0 {
		os.Exit(1)
	}
}

func read(name string) ([]op, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var lines []op
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		var o op
		if err := json.Unmarshal(scanner.Bytes(), &o); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", name, scanner.Text(), err)
		}
		if o.Return == nil && (o.Result == "granted" || o.Result == "released" || o.Result == "held") {
			return nil, fmt.Errorf("%s: %q: a result without a time", name, scanner.Text())
		}
		lines = append(lines, o)
	}
	return lines, scanner.Err()
}

// check judges each lock by itself, and returns how many have no order that explains them.
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
			unknown++
		}
	}
	fmt.Printf("%s: %d locks, %d operations, %d without a verdict, %d violations\n", name, len(locks), ops, unknown, bad)
	return bad
}
