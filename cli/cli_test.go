package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"leasehold.dev/protos/errs"
)

func TestCommandLine(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	t.Setenv("LEASEHOLD_MODEL", "")
	t.Setenv("LEASEHOLD_API_KEY", "")
	for name, c := range map[string]struct{ args, err string }{
		"an unknown command":                {"serve", "unexpected argument serve; try leasehold --help"},
		"up without a model":                {"up", "--model"},
		"up with a model that is not there": {"up --model " + none, none},
		"an unknown back end":               {"up --backend tpu --model cli.go", "cpu"},
		"a URL without a key":               {"chat --url http://a:1 hi", "--key or LEASEHOLD_API_KEY"},
		"a URL without a scheme":            {"models --url a:1 --key k", "not like http://127.0.0.1:8080"},
		"chat without a mesh":               {"chat --dir " + none + " hi", "no mesh runs from " + none},
		"models without a mesh":             {"models --dir " + none, "start one with leasehold up"},
		"ps without a mesh":                 {"ps --dir " + none, "no mesh runs from"},
		"ps of a registry as nobody":        {"ps --registry consul://a:1", "--registry and --identity go together"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := run(t, "", strings.Fields(c.args)...)
			wantError(t, err, c.err)
		})
	}
}

func TestHelp(t *testing.T) {
	for args, want := range map[string]string{"": "models", "--help": "Who is where", "up --help": "$LEASEHOLD_MODEL", "chat --help": "--max-tokens"} {
		if out, err := run(t, "", strings.Fields(args)...); err != nil || !strings.Contains(out, want) {
			t.Errorf("leasehold %s = %v, lacks %q:\n%s", args, err, want, out)
		}
	}
}

// gonePID is the process id of a process that has ended.
func gonePID(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

func TestState(t *testing.T) {
	dir := t.TempDir()
	want := state{PID: os.Getpid(), URL: "http://a:1", Key: "k", Registry: "embedded://b:2", Identity: "/i"}
	if err := want.write(dir); err != nil {
		t.Fatal(err)
	}
	if got, err := readState(dir); err != nil || got != want {
		t.Errorf("readState = %+v, %v; want %+v", got, err, want)
	}
	if info, err := os.Stat(filepath.Join(dir, stateFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("state file: %v, %v", info.Mode(), err)
	}
	if url, key, err := (target{Dir: dir, Key: "mine"}).find(); err != nil || url != want.URL || key != "mine" {
		t.Errorf("target = %s, %s, %v", url, key, err)
	}
}

func TestStateThatIsNoMesh(t *testing.T) {
	for text, want := range map[string]string{
		`{"pid": ` + strconv.Itoa(gonePID(t)) + `}`: "is gone",
		`{}`:     "process 0, is gone",
		`{"pid"`: "state.json",
	} {
		dir := t.TempDir()
		writeFile(t, filepath.Join(dir, stateFile), text)
		_, err := readState(dir)
		wantError(t, err, want)
	}
}

func TestClaim(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mesh")
	lock, err := claim(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = claim(dir)
	wantError(t, err, "starts or stops in "+dir)
	if err := (state{PID: os.Getpid(), URL: "http://a:1"}).write(dir); err != nil {
		t.Fatal(err)
	}
	_, err = claim(dir)
	wantError(t, err, "runs from "+dir+" already, at http://a:1, process "+strconv.Itoa(os.Getpid()))
	lock.Close()

	if lock, err = claim(dir); err != nil {
		t.Fatalf("what a killed run left is not taken: %v", err)
	}
	defer lock.Close()
	if _, err := os.Stat(filepath.Join(dir, stateFile)); err == nil {
		t.Error("the killed run's state is still there")
	}
}

func TestClaimRefusesOthersFiles(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "thesis.tex"), "x")
	_, err := claim(dir)
	wantError(t, err, "holds 1 other files, such as thesis.tex")
	if errs.KindOf(err) != errs.Invalid {
		t.Errorf("kind %v", errs.KindOf(err))
	}
	if _, err := os.Stat(filepath.Join(dir, "thesis.tex")); err != nil {
		t.Error(err)
	}
}
