package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/settlewatch/settlewatch"

// floors is the table of the design, from the top: an import may only point to
// a lower line. A package that is not named here has no place in the house.
var floors = [][]string{
	{"cmd/settlewatch", "cmd/bench"},
	{"cmd/settlewatch/crash/buyer"},
	{"cmd/settlewatch/chp", "cmd/settlewatch/crash", "cmd/settlewatch/host", "cmd/settlewatch/inbox", "cmd/settlewatch/ui"},
	{"mcp"},
	{"mcp/transport", "mcp/market"},
	{"guard"},
	{"guard/approval"},
	{"guard/decision", "ingest"},
	{"assemble", "store"},
	{"guard/payment", "migrations"},
	{"assemble/yaml12", "ingest/event", "guard/canon"},
	{"assemble/jsjson", "internal/errcode", "internal/plain", "internal/safefile", "internal/house", "internal/metrics"},
}

func floor(pkg string) int {
	return slices.IndexFunc(floors, func(line []string) bool { return slices.Contains(line, pkg) })
}

// composes reports whether a package is part of the composition root, which may do
// what rooms may not. A room below a command's directory is a room all the same.
func composes(pkg string) bool { return floor(pkg) == 0 }

// file is one Go file of the module that is not a test.
type file struct {
	pkg, name string
	ast       *ast.File
	fset      *token.FileSet
}

func files(t *testing.T) []file {
	t.Helper()
	root := filepath.Join("..", "..")
	var out []file
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if d.Name() == "testdata" || (strings.HasPrefix(d.Name(), ".") && rel != ".") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		out = append(out, file{pkg: filepath.ToSlash(filepath.Dir(rel)), name: rel, ast: f, fset: fset})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 20 {
		t.Fatalf("found only %d Go files from here; the walk does not see the module", len(out))
	}
	return out
}

func TestImportsOnlyPointDown(t *testing.T) {
	for _, f := range files(t) {
		from := floor(f.pkg)
		if from < 0 {
			t.Errorf("%s: package %s has no line in the table of the design", f.name, f.pkg)
			continue
		}
		for _, spec := range f.ast.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			pkg, ours := strings.CutPrefix(path, module+"/")
			if ours && floor(pkg) <= from {
				t.Errorf("%s: %s imports %s, which is not below it", f.name, f.pkg, pkg)
			}
		}
	}
}

// apart are rooms of different floors that must not know each other all the
// same: what the guard judges reaches it as facts, not by asking the index.
var apart = [][2]string{{"guard", "ingest"}, {"guard/approval", "ingest"}, {"guard/decision", "ingest"}, {"store", "assemble"},
	// What a person sees and does goes through the desk, and nowhere else.
	{"cmd/settlewatch/inbox", "guard"}, {"cmd/settlewatch/inbox", "guard/decision"}, {"cmd/settlewatch/inbox", "ingest"}, {"cmd/settlewatch/inbox", "store"},
	{"cmd/settlewatch/inbox", "mcp"}}

func TestTheGuardAndTheIndexerDoNotKnowEachOther(t *testing.T) {
	for _, f := range files(t) {
		for _, spec := range f.ast.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			for _, pair := range apart {
				for _, p := range [][2]string{pair, {pair[1], pair[0]}} {
					if f.pkg == p[0] && path == module+"/"+p[1] {
						t.Errorf("%s: %s must not import %s", f.name, p[0], p[1])
					}
				}
			}
		}
	}
}

// What adds up whether the guard let too much through must not make the guard's own
// mistakes.
func TestTheCrashTestSharesNothingWithWhatItTries(t *testing.T) {
	seen := false
	for _, f := range files(t) {
		if f.pkg != "cmd/settlewatch/crash" {
			continue
		}
		seen = true
		for _, spec := range f.ast.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			if pkg, ours := strings.CutPrefix(path, module+"/"); ours && pkg != "internal/errcode" && pkg != "internal/plain" {
				t.Errorf("%s: %s must not import %s", f.name, f.pkg, pkg)
			}
		}
	}
	if !seen {
		t.Error("the crash test is not where this looks for it")
	}
}

// What rooms may take from outside the module beside the plain parts of the
// standard library: anything that dials, runs programs or speaks SQL is named
// here or not imported.
var allowed = map[string][]string{
	"cmd/settlewatch/chp": {},
	"cmd/settlewatch/crash": {"os/exec", // its buyers are processes
		"syscall"}, // to have one that hangs say where
	"cmd/settlewatch/crash/buyer": {},
	"cmd/settlewatch/host":        {},
	"assemble":                    {},
	"assemble/jsjson":             {},
	"assemble/yaml12":             {},
	// The terminal it draws on is handed to it.
	"cmd/settlewatch/inbox": {"charm.land/bubbletea/v2"},
	"cmd/settlewatch/ui":    {"net/http"}, // a handler; who listens is the composition root's business
	"guard":                 {},
	"guard/approval":        {},
	"guard/canon":           {},
	"guard/decision": {"github.com/gofrs/flock", "github.com/tidwall/btree", "golang.org/x/crypto/chacha20poly1305", "golang.org/x/crypto/scrypt",
		"golang.org/x/sys/unix"},
	"guard/payment": {"golang.org/x/crypto/sha3", "golang.org/x/net/idna"},
	"ingest": {"github.com/fsnotify/fsnotify", "github.com/gofrs/flock", "github.com/hashicorp/golang-lru/v2/simplelru", "golang.org/x/sync/errgroup", "golang.org/x/sys/unix",
		"syscall"}, // to tell a shortage of descriptors from a file that cannot be read
	"ingest/event":     {},
	"internal/errcode": {},
	"internal/metrics": {"github.com/VictoriaMetrics/metrics", "golang.org/x/net/netutil",
		"net", "net/http"}, // to listen
	"internal/plain":    {"golang.org/x/text/unicode/norm", "golang.org/x/text/width"},
	"internal/safefile": {"golang.org/x/sys/unix", "syscall"},
	"mcp": {"github.com/mark3labs/mcp-go/mcp", "github.com/mark3labs/mcp-go/server", "github.com/santhosh-tekuri/jsonschema/v6",
		"github.com/santhosh-tekuri/jsonschema/v6/kind", "golang.org/x/text/language", "golang.org/x/text/message",
		"net/http"}, // the type of a handler
	"mcp/transport": {"github.com/golang-jwt/jwt/v5", "github.com/hashicorp/golang-lru/v2/simplelru", "golang.org/x/time/rate",
		"net", "net/http"}, // to listen and to answer
	"mcp/market": {"github.com/hashicorp/golang-lru/v2/simplelru", "golang.org/x/net/proxy", "golang.org/x/sync/singleflight", "golang.org/x/text/unicode/norm",
		"net", "net/http", "syscall"}, // to dial; syscall for the type of what a dial is checked with
	"migrations": {},
	"store": {"database/sql", "database/sql/driver", "github.com/jmoiron/sqlx", "github.com/pressly/goose/v3",
		"modernc.org/sqlite", "modernc.org/sqlite/lib"},
}

// Parts of the standard library that need a place in allowed as well.
var guarded = []string{"net", "net/http", "net/rpc", "net/smtp", "net/textproto", "os/exec", "os/signal", "os/user", "plugin", "syscall", "unsafe",
	"database/sql", "database/sql/driver", "encoding/gob", "math/rand"}

func TestRoomsTakeFromOutsideOnlyWhatIsTheirs(t *testing.T) {
	for _, f := range files(t) {
		if composes(f.pkg) {
			continue // what it must not do is dial
		}
		for _, spec := range f.ast.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			outside := strings.Contains(strings.SplitN(path, "/", 2)[0], ".") && !strings.HasPrefix(path, module+"/")
			if (outside || slices.Contains(guarded, path)) && !slices.Contains(allowed[f.pkg], path) {
				t.Errorf("%s: %s must not import %s", f.name, f.pkg, path)
			}
		}
	}
}

func TestNothingButTheMarketRoomCanDial(t *testing.T) {
	for _, f := range files(t) {
		if f.pkg == "mcp/market" {
			continue
		}
		for _, spec := range f.ast.Imports {
			if path, _ := strconv.Unquote(spec.Path.Value); slices.Contains(diallers, path) {
				t.Errorf("%s: %s is for mcp/market only", f.name, path)
			}
		}
		for _, spec := range f.ast.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			if (path == "net" || strings.HasPrefix(path, "net/http")) && !slices.Contains(allowed[f.pkg], path) && !slices.Contains(listening, filepath.ToSlash(f.name)) {
				t.Errorf("%s: %s must not import %s", f.name, f.pkg, path)
			}
		}
		banCalls(t, f, dials)
	}
}

// listening are the files of the composition root that serve pages to this machine,
// and measure them.
var listening = []string{"cmd/settlewatch/uicmd.go", "cmd/bench/pages.go"}

// dials is what of the network's packages opens connections or asks for names.
// The rooms that listen and answer import these packages and must not use it.
var dials = map[string][]string{
	"net": {"Dial", "DialTimeout", "Dialer", "DialTCP", "DialUDP", "DialIP", "DialUnix", "Resolver", "DefaultResolver",
		"LookupHost", "LookupIP", "LookupAddr", "LookupCNAME", "LookupMX", "LookupNS", "LookupPort", "LookupSRV", "LookupTXT",
		"ResolveTCPAddr", "ResolveUDPAddr", "ResolveIPAddr"},
	"http": {"Get", "Post", "Head", "PostForm", "Client", "DefaultClient", "Transport", "DefaultTransport", "NewRequest", "NewRequestWithContext"},
	"tls":  {"Client", "Dial", "DialWithDialer", "Dialer"},
}

// diallers are packages that do nothing else (market contract, section 7,
// "Boundary").
var diallers = []string{"golang.org/x/net/proxy", "net/http/httputil", "net/rpc", "net/rpc/jsonrpc", "net/smtp", "net/textproto"}

// Calls that only the composition root may make: the clock, the environment,
// the standard streams and the end of the process.
var banned = map[string][]string{
	"time":    {"Now", "Since", "Until"},
	"os":      {"Getenv", "LookupEnv", "Environ", "Stdout", "Stdin", "Stderr", "Exit", "Args"},
	"net":     {"Listen", "ListenPacket"}, // an address is held to a policy before it is bound: transport.Listen
	"http":    {"ListenAndServe", "ListenAndServeTLS"},
	"fmt":     {"Print", "Println", "Printf"},
	"log":     {"Print", "Println", "Printf", "Fatal", "Fatalf", "Panic"},
	"context": {"TODO"},
}

func TestClocksDialsAndStreamsBelongToTheCompositionRoot(t *testing.T) {
	for _, f := range files(t) {
		if !composes(f.pkg) {
			banCalls(t, f, banned)
		}
	}
}

// strconv.ParseFloat misreads numerals of more than eight hundred digits, and what a
// stranger writes may have them: one room knows how to shorten them first.
func TestOneRoomReadsDoubles(t *testing.T) {
	for _, f := range files(t) {
		if f.pkg != "assemble/jsjson" {
			banCalls(t, f, map[string][]string{"strconv": {"ParseFloat"}, "fmt": {"Sscan", "Sscanf", "Fscan", "Fscanf"}})
		}
	}
}

// banCalls reports what of the banned names a file uses.
func banCalls(t *testing.T, f file, banned map[string][]string) {
	t.Helper()
	// The name a package goes by here may be one of the file's own choice.
	names := map[string]string{}
	for _, spec := range f.ast.Imports {
		path, _ := strconv.Unquote(spec.Path.Value)
		base := path[strings.LastIndex(path, "/")+1:]
		if spec.Name == nil {
			names[base] = base
		} else if names[spec.Name.Name] = base; spec.Name.Name == "." && banned[base] != nil {
			t.Errorf("%s: a dot import of %s hides what is called", f.name, path)
		}
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && x.Obj == nil && slices.Contains(banned[names[x.Name]], sel.Sel.Name) {
			t.Errorf("%s: %s.%s is not for this room", f.fset.Position(sel.Pos()), names[x.Name], sel.Sel.Name)
		}
		return true
	})
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	said := map[string]bool{}
	for _, f := range files(t) {
		if filepath.Base(f.name) == "doc.go" && f.ast.Doc != nil && len(f.ast.Doc.Text()) > 80 {
			said[f.pkg] = true
		} else if _, ok := said[f.pkg]; !ok {
			said[f.pkg] = false
		}
	}
	for pkg, ok := range said {
		if !ok {
			t.Errorf("%s has no doc.go that says what it is for", pkg)
		}
	}
}

func TestTopLevelIsTheLayoutOfTheDesign(t *testing.T) {
	allowed := []string{"cmd", "ingest", "store", "migrations", "assemble", "guard", "mcp", "internal", "testdata", "docs",
		"go.mod", "go.sum", "README.md", "LICENSE", "CHANGELOG.md", ".ci", ".golangci.yml", ".gitignore", ".gitattributes"}
	names := topLevel(t, filepath.Join("..", ".."))
	if !slices.Contains(names, "go.mod") {
		t.Fatalf("go.mod is not among %q", names)
	}
	for _, name := range names {
		if !slices.Contains(allowed, name) {
			t.Errorf("%s has no place at the top level", name)
		}
	}
}

// topLevel names what the repository holds at its top: what git tracks, and
// where there is no git, or no checkout, what no pattern of .gitignore leaves
// out. What a reader has built or recorded there is theirs.
func topLevel(t *testing.T, root string) []string {
	t.Helper()
	if _, err := os.Lstat(filepath.Join(root, ".git")); err == nil {
		list := exec.CommandContext(t.Context(), "git", "ls-files", "-z")
		list.Dir = root
		if out, err := list.Output(); err == nil {
			var names []string
			for path := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
				name, _, _ := strings.Cut(path, "/")
				names = append(names, name)
			}
			slices.Sort(names)
			return slices.Compact(names)
		}
	}
	ignore, err := os.ReadFile(filepath.Join(root, ".gitignore"))
	if err != nil {
		t.Fatal(err)
	}
	return unignored(t, root, string(ignore))
}

func unignored(t *testing.T, root, ignore string) []string {
	t.Helper()
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		left := e.Name() == ".git"
		for pattern := range strings.Lines(ignore) {
			match, err := filepath.Match(strings.Trim(strings.TrimSpace(pattern), "/"), e.Name())
			if err != nil {
				t.Fatal(err)
			}
			left = left || match
		}
		if !left {
			names = append(names, e.Name())
		}
	}
	return names
}

func TestWhatIsBuiltAtTheTopLevelIsNoPartOfIt(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"settlewatch", "a.prof", "stray", "go.mod"} {
		if err := os.WriteFile(filepath.Join(root, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(root, ".trace"), 0o700); err != nil {
		t.Fatal(err)
	}
	if got, want := unignored(t, root, "/settlewatch\n*.prof\n.trace/\n"), []string{"go.mod", "stray"}; !slices.Equal(got, want) {
		t.Errorf("left are %q, want %q", got, want)
	}
}
