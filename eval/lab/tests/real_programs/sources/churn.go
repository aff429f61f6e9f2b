// SPDX-License-Identifier: MIT OR Apache-2.0

// Keeps some 40 MiB in maps of four goroutines, makes garbage, and looks at all that it keeps until its time is up.
package main

import "C"

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"
)

const each = 20000

func keep(who int, built *sync.WaitGroup, seconds int) (sum uint64, wrong int) {
	kept := map[int][]uint64{}
	for n := 0; n < each; n++ {
		words := make([]uint64, 64)
		for at := range words {
			words[at] = uint64(n*31 + who)
		}
		kept[n] = words
	}
	built.Done()
	built.Wait()
	end := time.Now().Add(time.Duration(seconds) * time.Second)
	if who == 0 {
		os.WriteFile(os.Args[2], nil, 0o600)
	}
	for turn := 0; turn == 0 || time.Now().Before(end); turn++ {
		for n := 0; n < each; n++ {
			for _, word := range kept[n] {
				if word != uint64(n*31+who) {
					wrong++
				}
			}
			if n%16 == turn%16 {
				kept[n] = append([]uint64(nil), kept[n]...)
			}
		}
		if who == 0 {
			runtime.GC()
		}
	}
	for n := 0; n < each; n++ {
		sum = sum*1000003 + kept[n][n%64]
	}
	return sum, wrong
}

func main() {
	seconds, _ := strconv.Atoi(os.Args[1])
	var sums [4]uint64
	var wrong [4]int
	var all, built sync.WaitGroup
	built.Add(len(sums))
	for who := range sums {
		all.Add(1)
		go func(who int) {
			defer all.Done()
			sums[who], wrong[who] = keep(who, &built, seconds)
		}(who)
	}
	all.Wait()
	fmt.Println("go", sums, "wrong", wrong)
}
