package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/settlewatch/settlewatch/internal/plain"
)

// seat is a terminal of the kernel's, with a program or this test at its inner end
// and a person, the test, in front of it.
type seat struct {
	t            *testing.T
	front, inner *os.File
	before       *unix.Termios

	mu    sync.Mutex
	drawn bytes.Buffer // everything that was drawn
	from  int          // what of it is new
}

func takeSeat(t *testing.T, columns, rows uint16) *seat {
	t.Helper()
	front, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { front.Close() })
	fd := int(front.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	inner, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { inner.Close() })
	s := &seat{t: t, front: front, inner: inner}
	s.resize(columns, rows)
	s.before = s.state()
	go func() {
		b := make([]byte, 32<<10)
		for {
			n, err := front.Read(b)
			s.mu.Lock()
			s.drawn.Write(b[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return s
}

func (s *seat) resize(columns, rows uint16) {
	s.t.Helper()
	if err := unix.IoctlSetWinsize(int(s.front.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *seat) state() *unix.Termios {
	s.t.Helper()
	state, err := unix.IoctlGetTermios(int(s.inner.Fd()), unix.TCGETS)
	if err != nil {
		s.t.Fatal(err)
	}
	return state
}

// run starts the program at the inner end, with it as its controlling terminal.
func (s *seat) run(home string, args ...string) *exec.Cmd {
	s.t.Helper()
	binary, err := exec.LookPath("settlewatch") // the test binary, see TestMain
	if err != nil {
		s.t.Fatal(err)
	}
	c := exec.Command(binary, args...)
	c.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME=", "TERM=xterm-256color", "COLUMNS=", "NO_COLOR=")
	c.Stdin, c.Stdout, c.Stderr = s.inner, s.inner, s.inner
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := c.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Process.Kill() })
	return c
}

func (s *seat) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.drawn.Bytes()[s.from:])
}

func (s *seat) everything() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drawn.String()
}

const generous = 30 * time.Second

// sees waits until a text is on the screen. What is drawn anew is only what has
// changed, so the whole of it is asked for while it is not there.
func (s *seat) sees(want string) {
	s.t.Helper()
	const redraw = "\x0c"
	for began := time.Now(); ; {
		if strings.Contains(squeezed(plain.Clean(s.text(), 1<<20)), squeezed(want)) {
			break
		}
		if time.Since(began) > generous {
			s.t.Fatalf("no %q on the screen, which shows\n%q", want, plain.Clean(s.text(), 1<<20))
		}
		time.Sleep(20 * time.Millisecond)
		if s.raw() {
			s.types(redraw)
		}
	}
	s.mu.Lock()
	s.from = s.drawn.Len()
	s.mu.Unlock()
}

// shows waits until something is drawn by itself.
func (s *seat) shows(want string) {
	s.t.Helper()
	for began := time.Now(); !strings.Contains(s.text(), want); time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > generous {
			s.t.Fatalf("no %q is drawn, but %q", want, s.text())
		}
	}
}

// raw reports whether a full screen has the terminal.
func (s *seat) raw() bool { return s.state().Lflag&unix.ICANON == 0 }

func (s *seat) types(keys string) {
	s.t.Helper()
	if _, err := s.front.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

// leaves waits for the end of a program, which has to leave the terminal as it was.
func (s *seat) leaves(c *exec.Cmd, want int) {
	s.t.Helper()
	done := make(chan error, 1)
	go func() { done <- c.Wait() }()
	select {
	case <-done:
	case <-time.After(generous):
		s.t.Fatal("it goes on")
	}
	if got := c.ProcessState.ExitCode(); got != want {
		s.t.Errorf("exit status %d, want %d; the screen shows\n%q", got, want, s.text())
	}
	s.restored()
}

func (s *seat) restored() {
	s.t.Helper()
	if after := s.state(); *after != *s.before {
		s.t.Errorf("the terminal is left as %+v, it was %+v", *after, *s.before)
	}
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		all := s.everything()
		if strings.LastIndex(all, "\x1b[?1049l") >= strings.LastIndex(all, "\x1b[?1049h") && strings.LastIndex(all, "\x1b[?25h") >= strings.LastIndex(all, "\x1b[?25l") {
			return
		}
		if time.Since(began) > generous {
			s.t.Fatalf("the full screen is not left, or the cursor stays hidden: %q", all[max(0, len(all)-200):])
		}
	}
}

// manned is a root with an operator and two reviews that wait, and the home the
// operator's key is in.
func manned(t *testing.T) (root, policy, home string) {
	t.Helper()
	root, home = recorded(t, "01-four-sellers-settled"), t.TempDir()
	policy = filepath.Join(t.TempDir(), "policy.json")
	s := takeSeat(t, 80, 24)
	c := s.run(home, "operator", "init", "--name", "ana", "--json")
	s.sees("new passphrase:")
	s.types(passphrase + "\n")
	s.sees("the same again:")
	s.types(passphrase + "\n")
	if err := c.Wait(); err != nil {
		t.Fatal(err, s.everything())
	}
	if strings.Contains(s.everything(), passphrase) {
		t.Error("a new passphrase is echoed")
	}
	s.sees("operator.key")
	key := regexp.MustCompile(`"public_key": "([^"]+)"`).FindStringSubmatch(s.everything())
	if key == nil {
		t.Fatal(s.everything())
	}
	entry := fmt.Sprintf(`{"reviewAbove": "0.10", "operators": [{"name": "ana", "publicKey": %q}]}`, key[1])
	if err := os.WriteFile(policy, []byte(entry), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, who := range []string{"first.example", "second.example"} {
		if out, errs, status := answer(t, "check", "--dir", root, "--guard-config", policy, "--counterparty", who, "--amount", "0.50"); status != 10 {
			t.Fatalf("status %d, %s%s", status, out, errs)
		}
	}
	return root, policy, home
}

// statuses are the states of the reviews of a root, with who decided, oldest first.
func statuses(t *testing.T, root string) []string {
	t.Helper()
	out, errs, status := answer(t, "review", "list", "--status", "all", "--json", "--dir", root)
	if status != 0 {
		t.Fatal(errs)
	}
	var page struct {
		Reviews []struct{ Counterparty, Status, Note, Decided_by string }
	}
	if err := json.Unmarshal([]byte(out), &page); err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, r := range page.Reviews {
		found = append([]string{strings.Join([]string{r.Counterparty, r.Status, r.Note, r.Decided_by}, " | ")}, found...)
	}
	return found
}

func TestAPersonDecidesInTheInboxOfATerminal(t *testing.T) {
	root, policy, home := manned(t)
	s := takeSeat(t, 40, 16)
	c := s.run(home, "review", "--dir", root, "--guard-config", policy)
	s.sees("2 reviews wait")
	s.types("\r")
	s.sees("1 of 2: 0.50 USDC")
	s.types("a")
	s.sees("read it to its end first")
	s.types("        ")
	s.sees("a approve")
	s.resize(80, 24)
	s.types("        ")
	s.sees("a approve | r reject | esc back | ? keys")
	s.resize(40, 16)
	s.types("        ")
	s.sees("a approve")
	s.types("a")
	s.sees("You are about to let this be paid, once: pay 0.50 USDC")
	s.types("y\r")
	s.sees("only yes approves")
	s.types("\x15yes known seller\r")
	s.sees("passphrase of this key")
	s.types("a wrong one\r")
	s.sees("the passphrase does not open the key of ana")
	if got := statuses(t, root)[0]; !strings.Contains(got, "| pending |") {
		t.Errorf("decided without a signature: %s", got)
	}
	s.types(passphrase + "\r")
	s.sees("DONE approved")
	// The key is open: the next one asks for no passphrase, and a rejection for none at all.
	s.types("\r")
	s.sees("1 of 1: 0.50 USDC")
	s.types("r")
	s.sees("You are about to refuse this payment")
	s.types("too dear\r")
	s.sees("DONE rejected")
	s.types("\r")
	s.sees("Nothing waits for you.")
	s.types("q")
	s.leaves(c, 0)
	s.sees("approved r-") // in the terminal, where it stays
	equal(t, "decided", statuses(t, root), []string{"first.example | approved | known seller | ana", "second.example | rejected | too dear | unsigned (could be the agent)"})
	for _, secret := range []string{passphrase, "a wrong one"} {
		if strings.Contains(s.everything(), secret) {
			t.Errorf("%q was on the screen", secret)
		}
	}
}

func TestTheInboxFollowsTheLog(t *testing.T) {
	root := recorded(t, "01-four-sellers-settled")
	elsewhere := func(want int, args ...string) {
		t.Helper()
		if out, errs, status := answer(t, append(args, "--dir", root)...); status != want {
			t.Fatalf("status %d, %s%s", status, out, errs)
		}
	}
	s := takeSeat(t, 40, 16)
	c := s.run(t.TempDir(), "review", "--dir", root)
	s.sees("Nothing waits for you.")
	elsewhere(10, "check", "--counterparty", "new.example", "--amount", "3")
	s.shows("new.example") // by itself: no key was pressed
	s.sees("1 review waits")
	s.types("\r")
	s.sees("1 of 1: 3.00 USDC")
	id := regexp.MustCompile(`r-[0-9a-f]{24}`)
	out, _, _ := answer(t, "review", "list", "--dir", root)
	elsewhere(0, "review", "reject", id.FindString(out), "--note", "not ours")
	s.sees("this review is rejected already")
	s.types("a")
	s.sees("NOT POSSIBLE")
	elsewhere(0, "freeze", "--reason", "a drill")
	s.sees("! FROZEN: every payment is blocked")
	s.types("\x03")
	s.leaves(c, 0)
}

func TestASignalGivesTheTerminalBack(t *testing.T) {
	root := recorded(t, "01-four-sellers-settled")
	for _, signal := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		for _, command := range []string{"review", "watch"} {
			s := takeSeat(t, 40, 16)
			c := s.run(t.TempDir(), command, "--dir", root)
			s.sees(map[string]string{"review": "Nothing waits for you.", "watch": "reviews none waits"}[command])
			if err := c.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			s.leaves(c, interrupted)
		}
	}
}
