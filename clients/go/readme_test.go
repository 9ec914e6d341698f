package dlock_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestReadme runs the program of the README by the commands of the README.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```(go|sh)\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	if len(blocks) != 2 || blocks[0][1] != "go" || blocks[1][1] != "sh" {
		t.Fatalf("a program and its commands are expected: %q", blocks)
	}
	checkout, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	program := strings.ReplaceAll(blocks[0][2], "redis://127.0.0.1:6379", address)
	if err := os.WriteFile(filepath.Join(directory, "main.go"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.Command("sh", "-euc", strings.ReplaceAll(blocks[1][2], "CHECKOUT", checkout))
	command.Dir = directory
	said, err := command.CombinedOutput()
	if err != nil || !regexp.MustCompile(`the fencing token is \d+\n$`).Match(said) {
		t.Fatalf("%v: %s", err, said)
	}
}
