package exeunt_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// TestClientsWithRights: rights are those of a kind.Client, which only package api makes, from the
// user of a request.
func TestClientsWithRights(t *testing.T) {
	for _, s := range sources(t) {
		if s.test() || ownModule(s.dir()) || strings.HasSuffix(s.dir(), "test") || !slices.Contains(s.imports(), module+"kind") {
			continue
		}
		if first, _, _ := strings.Cut(s.dir(), "/"); first != "api" && makesClient(t, s.path) {
			t.Errorf("%s makes a client with rights, which only package api may: take the client as an argument", s.path)
		}
	}
}

// makesClient reports whether a file makes a kind.Client that may do something.
func makesClient(t *testing.T, path string) (found bool) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	name := "kind"
	for _, spec := range file.Imports {
		if spec.Name != nil && strings.Trim(spec.Path.Value, `"`) == module+"kind" {
			name = spec.Name.Name
		}
	}
	is := func(n ast.Expr, what string) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok || s.Sel.Name != what {
			return false
		}
		x, ok := s.X.(*ast.Ident)
		return ok && x.Name == name
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if n, ok := n.(*ast.CompositeLit); ok && is(n.Type, "Client") && len(n.Elts) > 0 {
			found = true
		}
		return true
	})
	return found
}
