package exeunt_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// TestServerIdentity: rights are those of a kind.Client. Package api makes one from the
// user of a request; only package server may make the server's own, which may do everything.
func TestServerIdentity(t *testing.T) {
	for _, s := range sources(t) {
		if s.test() || ownModule(s.dir()) || strings.HasSuffix(s.dir(), "test") || !slices.Contains(s.imports(), module+"kind") {
			continue
		}
		for _, made := range clientsIn(t, s.path) {
			if first, _, _ := strings.Cut(s.dir(), "/"); first != made.by {
				t.Errorf("%s makes %s, which only package %s may: take the client as an argument", s.path, made.what, made.by)
			}
		}
	}
}

// madeClient is a kind.Client that may do something, and the package that may make it.
type madeClient struct{ what, by string }

func clientsIn(t *testing.T, path string) (found []madeClient) {
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
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if is(n, "ServerClient") {
				found = append(found, madeClient{"the server's identity", "server"})
			}
		case *ast.CompositeLit:
			if is(n.Type, "Client") && len(n.Elts) > 0 {
				found = append(found, madeClient{"a client with rights", "api"})
			}
		}
		return true
	})
	return found
}
