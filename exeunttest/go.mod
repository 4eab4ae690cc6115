module github.com/exeunt/exeunt/exeunttest

go 1.26
