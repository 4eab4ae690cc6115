package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// mutant is one deliberate bug: text before and after a part of a file, so that one bug may be inside another.
type mutant struct {
	file, what, text string // what it does, and the source that it does it to
	line, from, to   int
	before, after    string // NUMBER stands for its number
	comma            int    // where an operator becomes a comma; 0 is nowhere
	number           int    // its place among those of the package, from 1
	refused          bool   // the compiler does not take it
	fate             fate
	by               string // the tests that see it
}

// fate is what became of a mutant.
type fate string

const (
	seen      fate = "seen"
	notSeen   fate = "not seen"
	unreached fate = "never reached"
)

func (m *mutant) String() string {
	return fmt.Sprintf("%s:%d: #%d %s: %s", m.file, m.line, m.number, m.what, m.text)
}

// harmless is code whose loss a test need not see: locks, logs, metrics, and what ends with the process.
var harmless = regexp.MustCompile(`(?i)lock\(\)|log\.|logger|slog\.|metrics\.|observe\(|\.inc\(\)|tracing|span\.|close\(\)|wg\.|stop\(\)|cancel\(\)|panic\(|runtime\.`)

// finder finds the places of a file that can be changed so that it still compiles, mostly.
type finder struct {
	file    string
	src     []byte
	set     *token.FileSet
	found   []*mutant
	skipped map[ast.Node]bool // statements of a header, which cannot stand in a block
	errors  []bool            // for each function around: its last result is an error
}

// find lists the mutants of a folder.
func find(folder string) (all []*mutant, err error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || strings.HasPrefix(filepath.Base(file), "zz_") {
			continue
		}
		src, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		f := &finder{file: file, src: src, set: token.NewFileSet(), skipped: map[ast.Node]bool{}}
		tree, err := parser.ParseFile(f.set, file, src, 0)
		if err != nil {
			return nil, err
		}
		ast.Inspect(tree, f.visit)
		all = append(all, f.found...)
	}
	for i, m := range all {
		m.number = i + 1
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no Go code", folder)
	}
	return all, nil
}

func (f *finder) offset(p token.Pos) int   { return f.set.Position(p).Offset }
func (f *finder) text(n ast.Node) string   { return string(f.src[f.offset(n.Pos()):f.offset(n.End())]) }
func (f *finder) harmless(n ast.Node) bool { return harmless.MatchString(f.text(n)) }

// wrap adds a mutant that has text around a node.
func (f *finder) wrap(what string, n ast.Node, before, after string) *mutant {
	m := &mutant{
		file: f.file, line: f.set.Position(n.Pos()).Line, from: f.offset(n.Pos()), to: f.offset(n.End()),
		what: what, text: strings.Join(strings.Fields(f.text(n)), " "), before: before, after: after,
	}
	f.found = append(f.found, m)
	return m
}

func (f *finder) remove(n ast.Stmt) {
	if !f.skipped[n] && !f.harmless(n) {
		f.wrap("left out", n, "if !mutantIs(NUMBER) { ", " }")
	}
}

func (f *finder) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.FuncDecl:
		if n.Body != nil && !slices.Contains([]string{"init", "String", "Describe", "Collect"}, n.Name.Name) {
			f.function(n.Type, n.Body)
		}
		return false
	case *ast.FuncLit:
		f.function(n.Type, n.Body)
		return false
	case *ast.GenDecl:
		return n.Tok == token.VAR
	case *ast.SwitchStmt:
		f.skipped[n.Init] = true
	case *ast.TypeSwitchStmt:
		f.skipped[n.Init], f.skipped[n.Assign] = true, true
	case *ast.ForStmt:
		f.skipped[n.Init], f.skipped[n.Post] = true, true
	case *ast.CommClause:
		f.skipped[n.Comm] = true
	case *ast.IfStmt:
		f.skipped[n.Init] = true
		f.condition(n)
	case *ast.BinaryExpr:
		f.binary(n)
	case *ast.ExprStmt:
		if _, ok := n.X.(*ast.CallExpr); ok {
			f.remove(n)
		}
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE && f.text(n.Lhs[0]) != "_" {
			f.remove(n)
		}
	case *ast.IncDecStmt:
		f.remove(n)
	case *ast.BranchStmt:
		if n.Label == nil && n.Tok != token.FALLTHROUGH {
			f.remove(n)
		}
	case *ast.CompositeLit:
		f.fields(n)
	case *ast.CallExpr:
		f.arguments(n)
	case *ast.ReturnStmt:
		f.results(n)
	}
	return true
}

func (f *finder) function(t *ast.FuncType, body *ast.BlockStmt) {
	last := false
	if t.Results != nil && len(t.Results.List) > 0 {
		id, ok := t.Results.List[len(t.Results.List)-1].Type.(*ast.Ident)
		last = ok && id.Name == "error"
	}
	f.errors = append(f.errors, last)
	ast.Inspect(body, f.visit)
	f.errors = f.errors[:len(f.errors)-1]
}

func (f *finder) condition(n *ast.IfStmt) {
	text, body := f.text(n.Cond), n.Body.List
	if text == "err != nil" || text == "err == nil" || len(body) == 1 && f.harmless(body[0]) {
		return
	}
	f.wrap("never true", n.Cond, "(", ") && !mutantIs(NUMBER)")
	f.wrap("always true", n.Cond, "((", ") || mutantIs(NUMBER))")
}

func (f *finder) binary(n *ast.BinaryExpr) {
	switch n.Op {
	case token.LSS, token.LEQ, token.GTR, token.GEQ:
		f.wrap("the bound counts, or no longer", n, fmt.Sprintf("mutantBound(NUMBER, %q, ", n.Op), ")").comma = f.offset(n.OpPos)
	case token.LAND:
		f.wrap("this part of the condition left out", n.Y, "(mutantIs(NUMBER) || (", "))")
	case token.LOR:
		f.wrap("this part of the condition left out", n.Y, "(!mutantIs(NUMBER) && (", "))")
	}
}

func (f *finder) fields(n *ast.CompositeLit) {
	for _, e := range n.Elts {
		pair, ok := e.(*ast.KeyValueExpr)
		if !ok || f.harmless(pair) {
			continue
		}
		switch pair.Value.(type) {
		case *ast.FuncLit, *ast.CompositeLit, *ast.UnaryExpr, *ast.BasicLit:
			continue
		}
		if _, ok := pair.Key.(*ast.Ident); ok {
			f.wrap("empty", pair.Value, "mutantZero(NUMBER, ", ")")
		}
	}
}

// arguments says of whom or where: without it, something else is meant.
var arguments = regexp.MustCompile(`(?i)(namespace|uid|\.name|resource)$`)

func (f *finder) arguments(n *ast.CallExpr) {
	if name := f.text(n.Fun); f.harmless(n.Fun) || strings.HasPrefix(name, "fmt.") || strings.HasPrefix(name, "errors.") {
		return
	}
	for _, a := range n.Args {
		f.flip(a)
		if _, call := a.(*ast.CallExpr); !call && arguments.MatchString(f.text(a)) {
			f.wrap("empty", a, "mutantZero(NUMBER, ", ")")
		}
	}
}

func (f *finder) flip(e ast.Expr) {
	if text := f.text(e); text == "true" || text == "false" {
		f.wrap("the opposite", e, "(mutantIs(NUMBER) != ", ")")
	}
}

func (f *finder) results(n *ast.ReturnStmt) {
	for i, r := range n.Results {
		f.flip(r)
		if text := f.text(r); i == len(n.Results)-1 && f.errors[len(f.errors)-1] && text != "nil" && text != "err" {
			f.wrap("no error", r, "mutantError(NUMBER, ", ")")
		}
	}
}
