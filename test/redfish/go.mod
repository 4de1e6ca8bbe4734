module github.com/bootlab/bootlab/test/redfish

go 1.26

require github.com/stmcginnis/gofish v0.25.0
